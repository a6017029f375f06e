# SPDX-License-Identifier: MIT
"""Starts a process for each GPU as torch.distributed.run does, and ends them without a traceback when it is told to end.

usage: launch.py RANKS PROGRAM ARGUMENTS..."""
import logging
import os
import sys


def main():
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # what the launcher takes, with five lines about it
    os.environ.setdefault("LOGLEVEL", "ERROR")
    from torch.distributed.elastic.multiprocessing import api
    from torch.distributed.run import main as run
    logging.getLogger(api.__name__).setLevel(logging.ERROR)
    try:
        run(["--standalone", f"--nproc_per_node={sys.argv[1]}", *sys.argv[2:]])
    except api.SignalException as told:
        sys.exit(128 + told.sigval)


if __name__ == "__main__":
    main()
