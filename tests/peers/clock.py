# SPDX-License-Identifier: MIT
"""Times on a GPU: CUDA events around calls, and replays of CUDA graphs, which leave the host's launches out."""
import statistics

import torch


def event_ms(call):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def median_ms(call, warmup=3, iters=10):
    for _ in range(warmup):
        call()
    torch.cuda.synchronize()
    return statistics.median(event_ms(call) for _ in range(iters))


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
    """Replays every graph once per round, A B C A B C, so that all of them meet the same clocks and temperature.

    `graphs` maps a name to (graph, calls); returns a list of ms per call for each name. The first round is warm-up."""
    times = {name: [] for name in graphs}
    for turn in range(rounds + 1):
        for name, (graph, calls) in graphs.items():
            ms = event_ms(graph.replay) / calls
            if turn:
                times[name].append(ms)
    return times
