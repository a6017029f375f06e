# SPDX-License-Identifier: MIT
"""Times on a GPU: CUDA events around calls, and replays of CUDA graphs, which leave the host's launches out."""
import statistics
import time

import torch

import load

SETTLE_S = 0.15  # as the benches' --settle: for products, copies and attention; steps have their warm-up
SETTLED = f"samples after {SETTLE_S} s"
SAMPLE_S = 0.05  # of a turn


def event_ms(call):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def queued_ms(call, iters):
    """One call is launched behind the other: each from its begin to the next one's, without the host in it."""
    torch.cuda.synchronize()
    begins = [torch.cuda.Event(enable_timing=True) for _ in range(iters + 1)]
    for begin in begins[:-1]:
        begin.record()
        call()
    begins[-1].record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(begins, begins[1:])]


def samples_ms(call, warmup=3, iters=10, settle_s=0, sample_s=None):
    """After the warm-up, `settle_s` seconds without samples, in which a GPU comes to its power limit, then samples for `sample_s`,
    or for as long."""
    for _ in range(warmup):
        call()
    torch.cuda.synchronize()
    start, samples = time.monotonic(), []
    while time.monotonic() < start + settle_s:
        event_ms(call)
    start = time.monotonic()
    while len(samples) < iters or time.monotonic() < start + (settle_s if sample_s is None else sample_s):
        samples.append(event_ms(call))
    return samples


def median_ms(*how):
    return statistics.median(samples_ms(*how))


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


def spread(samples):
    """The columns of a call's time."""
    times = load.spread(samples)
    return {"median_ms": times["step_ms"], "p10_ms": times["step_p10_ms"], "p90_ms": times["step_p90_ms"]}


def call_times(graph, calls):
    """Of one of the calls in the graph."""
    return spread([ms / calls for ms in samples_ms(graph.replay, 2, 10, SETTLE_S)])


def in_turn(graphs, rounds):
    """Each graph once per round, every other round backwards. Turns are long: what follows another one within some 50 ms runs at
    its clock, so that in short turns, what takes less energy looks no faster.

    `graphs` maps a name to (graph, calls); returns a list of ms per call for each name."""
    times = {name: [] for name in graphs}
    for turn in range(rounds):
        for name in list(graphs)[::-1 if turn % 2 else 1]:
            graph, calls = graphs[name]
            times[name].append(median_ms(graph.replay, 0, 1, SETTLE_S, SAMPLE_S) / calls)
    return times
