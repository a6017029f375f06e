# SPDX-License-Identifier: MIT
"""PyTorch's collectives and data parallelism, one process per GPU: the peers of bench_allreduce, the DDP benches and ZeRO-1.

usage: python3 -m torch.distributed.run --standalone --nproc_per_node N parallel.py allreduce|ddp FOLDER [--small] [--case NUMBERS]"""
import contextlib
import gc
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import adamw
import clock
import float8
import load
import model as models
import parallel_cases
import ranks
import start
from ranks import slowest
from record import provenance, reason_of


def allocated(base):
    """GiB of tensors beyond `base` bytes: what an earlier case has left is not this one's."""
    return (torch.cuda.memory_allocated() - base) / 2**30


# ---- collectives ----

def call_ms(elements, backend):
    """The slowest rank's times of one all-reduce that the host starts, in queues of them."""
    if backend == "gloo":
        tensor, calls = torch.ones(elements), 5
        dist.all_reduce(tensor)
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(tensor)
        return slowest([(time.perf_counter() - start) / calls * 1e3], "cpu")
    tensor, calls = torch.ones(elements, device="cuda"), 200 if elements <= 1 << 18 else 30

    def queue():
        for _ in range(calls):
            dist.all_reduce(tensor)
    return slowest([ms / calls for ms in clock.samples_ms(queue, 1, 5)])


def graph_ms(elements):
    tensor, stream = torch.ones(elements, device="cuda"), torch.cuda.Stream()
    calls = 100 if elements <= 1 << 18 else 10
    with torch.cuda.stream(stream):
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(calls):
            dist.all_reduce(tensor)
    dist.barrier()
    return slowest([ms / calls for ms in clock.samples_ms(graph.replay, 2, 7)])


def allreduce(rows, small):
    count, backend = dist.get_world_size(), dist.get_backend()
    size = 1024
    while size <= (1 << 20 if small else 1 << 30 if backend == "nccl" else 1 << 26):
        for mode in ("eager", "graph") if backend == "nccl" else ("eager",):
            times = graph_ms(size // 4) if mode == "graph" else call_ms(size // 4, backend)
            ms = statistics.median(times)
            if rows:
                rows.add(bench="allreduce", backend=backend, ranks=count, bytes=size, mode=mode, policy="torch.distributed.all_reduce, fp32, in place",
                         median_ms=ms, least_ms=min(times), most_ms=max(times), algbw_gb_s=size / ms / 1e6, busbw_gb_s=size / ms / 1e6 * 2 * (count - 1) / count)
        size *= 2


# ---- steps ----

class Strategy:
    """A model with its optimizer, and what is called with tokens."""

    def __init__(self, case, model):
        self.function, self.begin = model, lambda: None
        fused, rest = case.mode in parallel_cases.FUSED, case.strategy == "fsdp2-rest"
        if case.precision in parallel_cases.TORCHAO:
            float8.convert(model, case.precision, parallel_cases.TORCHAO[case.precision])
        for block in model.blocks:
            block.recompute = rest
        models.compile_blocks(model, fused, parts=rest)
        if case.strategy.startswith("fsdp2"):  # after blocks were compiled, as FSDP2's authors advise
            ranks.shard(model, free=case.strategy != "fsdp2-keep", ahead=2 if case.mode == "fused-prefetch" else 0,
                        sums=torch.bfloat16 if rest else torch.float32, tail=rest)
        else:
            self.function = DistributedDataParallel(model, device_ids=[torch.cuda.current_device()], bucket_cap_mb=case.bucket_mb, gradient_as_bucket_view=True,
                                                    broadcast_buffers=False)
        rates = {"lr": adamw.LR, "betas": (adamw.BETA1, adamw.BETA2), "eps": adamw.EPS, "weight_decay": adamw.DECAY, "fused": True}
        if rest:
            self.optimizer = adamw.Compiled(model.parameters(), True, device=next(model.parameters()).device)
            self.begin = self.optimizer.begin
        elif case.strategy == "zero1":
            self.optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, parameters_as_bucket_view=True, **rates)
        else:
            self.optimizer = torch.optim.AdamW(model.parameters(), capturable=case.mode == "fused-graph", **rates)
        self.parameters = list(model.parameters())


def mean(value):
    total = torch.tensor(float(value), dtype=torch.float64, device="cuda")
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def phases_of(step, marks, iters):
    """Of further steps, each waited for."""
    found = []
    for _ in range(iters):
        step()
        torch.cuda.synchronize()
        found.append([a.elapsed_time(b) for a, b in zip(marks, marks[1:])])
    return found


def measure(case, gpu, warmup, iters):
    """Medians of the slowest rank, the share in which the least busy GPU was busy, and the memory that this rank's tensors take by
    phase. Python's collector of garbage does not run meanwhile: it would stop a rank, and with it all of them."""
    torch.cuda.reset_peak_memory_stats()
    base, graph, fused = torch.cuda.memory_allocated(), case.mode == "fused-graph", case.mode in parallel_cases.FUSED
    rest = case.strategy == "fsdp2-rest"
    if rest:
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")  # parts of all sizes come and go in what is left
    model = models.create(case.size, case.seq, fused=fused)
    if case.precision == "bf16pure":
        model = model.bfloat16()
    if rest:
        models.round_parameters(model)
    memory, stream = {"mem_init_gib": allocated(base)}, torch.cuda.Stream()
    with torch.cuda.stream(stream) if graph else contextlib.nullcontext():
        run = Strategy(case, model)
    inputs, targets = start.batch_of_rank(case.batch, case.seq, load.vocab_of(case.size), dist.get_rank(), "cuda")
    autocast = case.precision == "bf16" and not case.strategy.startswith("fsdp2")
    marks = [torch.cuda.Event(enable_timing=True, external=graph) for _ in range(4)]

    def step():
        marks[0].record()
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast, cache_enabled=not graph):
            loss = models.loss_of(run.function, inputs, targets, fused)
        marks[1].record()
        loss.backward()
        marks[2].record()
        memory["mem_before_step_gib"] = allocated(base)
        run.begin()
        run.optimizer.step()
        memory["mem_after_step_gib"] = allocated(base)
        for parameter in run.parameters:
            parameter.grad = None
        marks[3].record()
        run.loss = loss
        return loss

    gc.collect()
    gc.disable()
    with torch.cuda.stream(stream) if graph else contextlib.nullcontext():
        losses = [mean(step().detach()) for _ in range(3)]
    # DDP needs some steps on the stream before.
    again = ranks.captured(step, stream, warmup=11) if graph else step
    for _ in range(warmup):
        again()
    phases = ("fwd_ms", "bwd_ms", "opt_ms")  # the library sends inside backward: what is exposed cannot be told apart
    times = load.spread(slowest(ranks.queued(again, iters)))
    times |= zip(phases, slowest([statistics.median(part) for part in zip(*phases_of(again, marks, iters // 4))]))
    result = {**times, **memory, "peak_gib": (torch.cuda.max_memory_allocated() - base) / 2**30, "loss_first": losses[0],
              "loss_third": losses[2], "loss": float(run.loss.detach()),
              "mfu_pct": load.mfu_pct(gpu["gpu"], case.precision, case.size, case.seq, case.batch, times["step_ms"])}
    return {**result, **load.gpu_busy_or_note(again, torch.cuda.synchronize, times["step_ms"], gpu["gpu_uuid"], agree=slowest)}


def ddp(rows, cases, warmup=5, iters=20):
    """Behind a case that fails the ranks may not agree on what comes next, and its memory may not be free: other processes go on, and
    a case that was not the first here is tried once more there."""
    gpu = provenance()
    for place, case in enumerate(cases):
        started, cells = time.monotonic(), None
        load.limited(case.seconds)
        try:
            cells = measure(case, gpu, warmup, 8 if case.size == "8b" else iters)
        except Exception as error:
            print(f"  {case.strategy}, {case.mode}: {reason_of(error)}", file=sys.stderr)
            failed = {"note": reason_of(error)}
        gc.enable()
        if rows and (cells or place == 0):
            rows.add(**parallel_cases.columns(case, dist.get_world_size()), took_s=time.monotonic() - started, **(cells or failed))
        load.limited(None)
        if not cells:
            sys.exit(1)
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()


def main():
    what, folder = sys.argv[1:3]
    with ranks.job(what, folder, "gloo" if "--gloo" in sys.argv else "nccl") as rows:
        if what == "allreduce":
            allreduce(rows, "--small" in sys.argv)
        else:
            ddp(rows, parallel_cases.cases_of(what, sys.argv))


if __name__ == "__main__":
    main()
