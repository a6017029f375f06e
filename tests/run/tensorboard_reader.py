#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tensorboard_reader.py FOLDER    reads the event files of a log with TensorBoard's own reader (of PyPI), and prints each
scalar: its tag, step and value. Exit code 77: TensorBoard is not installed."""
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as missing:
    print(missing)
    sys.exit(77)

log = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
log.Reload()
for tag in log.Tags()["scalars"]:
    for scalar in log.Scalars(tag):
        print(tag, scalar.step, f"{scalar.value:.9g}")
