# SPDX-License-Identifier: MIT
"""PyTorch's collectives and data parallelism, one process per GPU: the peers of bench_allreduce, the DDP benches and ZeRO-1.

usage: python3 -m torch.distributed.run --standalone --nproc_per_node N parallel.py allreduce|ddp FOLDER [--small | --case NUMBER]"""
import gc
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import clock
import load
import model as models
import parallel_cases
import ranks
from ranks import slowest
from record import provenance, reason_of


def allocated(base):
    """GiB of tensors beyond `base` bytes: what an earlier case has left is not this one's."""
    return (torch.cuda.memory_allocated() - base) / 2**30


# ---- collectives ----

def call_ms(elements, backend):
    """The slowest rank's time of one all-reduce that the host starts, in a queue of them."""
    if backend == "gloo":
        tensor, calls = torch.ones(elements), 5
        dist.all_reduce(tensor)
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(tensor)
        return slowest((time.perf_counter() - start) / calls * 1e3, "cpu")
    tensor, calls = torch.ones(elements, device="cuda"), 200 if elements <= 1 << 18 else 30

    def queue():
        for _ in range(calls):
            dist.all_reduce(tensor)
    return slowest(clock.median_ms(queue, 1, 5) / calls)


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
    return slowest(clock.median_ms(graph.replay, 2, 7) / calls)


def allreduce(rows, small):
    count, backend = dist.get_world_size(), dist.get_backend()
    size = 1024
    while size <= (1 << 20 if small else 1 << 30 if backend == "nccl" else 1 << 26):
        for mode in ("eager", "graph") if backend == "nccl" else ("eager",):
            ms = graph_ms(size // 4) if mode == "graph" else call_ms(size // 4, backend)
            if rows:
                rows.add(bench="allreduce", backend=backend, ranks=count, bytes=size, mode=mode, policy="torch.distributed.all_reduce, fp32, in place",
                         median_ms=ms, algbw_gb_s=size / ms / 1e6, busbw_gb_s=size / ms / 1e6 * 2 * (count - 1) / count)
        size *= 2


# ---- steps ----

class Strategy:
    """A model with its optimizer, and what is done between backward and update."""

    def __init__(self, strategy, model, mode, bucket_mb):
        self.name, self.model, self.handles = strategy, model, []
        self.function = model
        if mode == "compile-blocks":
            for place, block in enumerate(model.blocks):
                model.blocks[place] = torch.compile(block, dynamic=False)
        if strategy in ("fsdp2", "fsdp2-keep"):
            ranks.shard(model, free=strategy == "fsdp2")  # after blocks were compiled, as FSDP2's authors advise
        elif strategy in ("ddp", "ddp25", "zero1"):
            self.function = DistributedDataParallel(model, device_ids=[torch.cuda.current_device()], bucket_cap_mb=bucket_mb,
                                                    gradient_as_bucket_view=True, broadcast_buffers=False)
        elif strategy == "overlap":
            for parameter in model.parameters():
                parameter.register_post_accumulate_grad_hook(self.send)
        if mode == "compile":
            self.function = torch.compile(self.function, dynamic=False)
        if strategy == "zero1":
            self.optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, parameters_as_bucket_view=True, lr=1e-4,
                                                     fused=True)
        else:
            self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def send(self, parameter):
        self.handles.append(dist.all_reduce(parameter.grad, dist.ReduceOp.AVG, async_op=True))

    def communicate(self):
        if self.name == "naive":
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
        elif self.name == "flat":
            grads = [parameter.grad for parameter in self.model.parameters()]
            flat = torch._utils._flatten_dense_tensors(grads)
            dist.all_reduce(flat, dist.ReduceOp.AVG)
            torch._foreach_copy_(grads, torch._utils._unflatten_dense_tensors(flat, grads))
        for handle in self.handles:
            handle.wait()
        self.handles.clear()


def measure(case, gpu, warmup, iters):
    """Medians of the slowest rank, the share in which the least busy GPU was busy, and the memory that this rank's tensors take by
    phase. Python's collector of garbage does not run meanwhile: it would stop a rank, and with it all of them."""
    strategy, precision, mode, bucket_mb, size, seq, batch = case[:7]
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    model = models.create(size, seq)
    if precision == "bf16pure":
        model = model.bfloat16()
    memory = {"mem_init_gib": allocated(base)}
    run = Strategy(strategy, model, mode, bucket_mb)
    inputs, targets = models.batch_of(batch, seq, seed=1 + dist.get_rank())
    autocast = precision == "bf16" and not strategy.startswith("fsdp2")
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(5)]

    def step():
        marks[0].record()
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = models.loss_of(run.function, inputs, targets)
        marks[1].record()
        loss.backward()
        marks[2].record()
        run.communicate()
        marks[3].record()
        memory["mem_before_step_gib"] = allocated(base)
        run.optimizer.step()
        memory["mem_after_step_gib"] = allocated(base)
        run.optimizer.zero_grad(set_to_none=True)
        marks[4].record()
        return loss

    gc.collect()
    gc.disable()
    for _ in range(warmup):
        step()
    # As the benches time theirs: one step is launched behind the other, from begin to begin.
    torch.cuda.synchronize()
    dist.barrier()
    begins = [torch.cuda.Event(enable_timing=True) for _ in range(iters + 1)]
    for begin in begins[:-1]:
        begin.record()
        loss = step()
    begins[-1].record()
    torch.cuda.synchronize()
    queued = [a.elapsed_time(b) for a, b in zip(begins, begins[1:])]
    phases = []  # of further steps, each waited for
    for _ in range(iters):
        loss = step()
        torch.cuda.synchronize()
        phases.append([a.elapsed_time(b) for a, b in zip(marks, marks[1:])])
    samples = [[step_ms, *parts] for step_ms, parts in zip(queued, phases)]
    medians = slowest([statistics.median(sample) for sample in zip(*samples)])
    times = dict(zip(("step_ms", "fwd_ms", "bwd_ms", "comm_exposed_ms", "opt_ms"), medians))
    if strategy not in ("naive", "flat", "overlap"):
        del times["comm_exposed_ms"]  # the library sends inside backward: what is exposed cannot be told apart
    result = {**times, **memory, "peak_gib": (torch.cuda.max_memory_allocated() - base) / 2**30, "loss": float(loss.detach()),
              "mfu_pct": load.mfu_pct(gpu["gpu"], precision, size, seq, batch, times["step_ms"])}
    busy = load.gpu_busy(step, torch.cuda.synchronize, times["step_ms"], gpu["gpu_uuid"], agree=slowest)
    return {**result, **busy} if busy else {**result, "note": "the share of busy time could not be measured"}


def ddp(rows, cases, warmup=5, iters=10):
    gpu = provenance()
    for case in cases:
        try:
            cells = measure(case, gpu, warmup, iters)
        except Exception as error:  # the same on every rank, or the job's timeout ends it
            cells = {"note": reason_of(error)}
        gc.enable()
        if rows:
            rows.add(**parallel_cases.columns(case, dist.get_world_size()), **cells)
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()


def cases_of(arguments):
    if "--small" in arguments:
        return parallel_cases.SMALL
    if "--case" in arguments:
        return [parallel_cases.CASES[int(arguments[arguments.index("--case") + 1])]]
    return parallel_cases.CASES


def main():
    what, folder = sys.argv[1:3]
    with ranks.job(what, folder, "gloo" if "--gloo" in sys.argv else "nccl") as rows:
        if what == "allreduce":
            allreduce(rows, "--small" in sys.argv)
        else:
            ddp(rows, cases_of(sys.argv))


if __name__ == "__main__":
    main()
