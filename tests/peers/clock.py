# SPDX-License-Identifier: MIT
"""Times on a GPU: CUDA events around calls, and replays of CUDA graphs, which leave the host's launches out."""
import statistics
import time

import torch

import turns

SETTLE_S = 0.15  # as the benches' --settle: for products, copies and attention; steps have their warm-up
SETTLED = f"samples after {SETTLE_S} s"


def event_ms(call):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def median_ms(call, warmup=3, iters=10, settle_s=0):
    """After the warm-up, `settle_s` seconds without samples, in which a GPU comes to its power limit, then samples for as long."""
    for _ in range(warmup):
        call()
    torch.cuda.synchronize()
    start, samples = time.monotonic(), []
    while time.monotonic() < start + settle_s:
        event_ms(call)
    start = time.monotonic()
    while len(samples) < iters or time.monotonic() < start + settle_s:
        samples.append(event_ms(call))
    return statistics.median(samples)


def capture(call, stream, fill_ms=6.0):
    """A graph of as many calls as fill `fill_ms`, and their number."""
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        one = min(event_ms(call) for _ in range(2))
    calls = max(1, min(200, int(fill_ms / max(one, 5e-3))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(calls):
            call()
    graph.replay()
    torch.cuda.synchronize()
    return graph, calls


def in_turn(graphs, rounds):
    """Replays every graph once per round, at least so many, in orders that differ (turns.py), so that all of them meet the same
    clocks and temperature.

    `graphs` maps a name to (graph, calls); returns a list of ms per call for each name. Rounds begin to count when the GPU
    has settled."""
    names, times, start = list(graphs), {name: [] for name in graphs}, time.monotonic()

    def play(order):
        return [(names[i], event_ms(graphs[names[i]][0].replay) / graphs[names[i]][1]) for i in order]

    while graphs and time.monotonic() < start + SETTLE_S:
        play(range(len(names)))
    for order in turns.orders(len(names), rounds):
        for name, ms in play(order):
            times[name].append(ms)
    return times
