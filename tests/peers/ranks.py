# SPDX-License-Identifier: MIT
"""A rank of a job that torch.distributed.run has started: its set-up, and what all ranks agree on."""
import contextlib
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import clock
import load
from record import Rows


@contextlib.contextmanager
def job(what, folder, backend="nccl", seconds=120):
    """Each rank with its GPU and an equal part of the cores. Gives the rows of rank 0, and None to the others."""
    rank = int(os.environ["LOCAL_RANK"])
    load.pin(rank, int(os.environ["LOCAL_WORLD_SIZE"]))
    if backend != "gloo":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, timeout=timedelta(seconds=seconds))
    yield Rows(what, folder) if dist.get_rank() == 0 else None
    dist.destroy_process_group()


def captured(step, stream, warmup=0):
    """A whole step as one CUDA graph, with its collectives and what it sends; `warmup` steps run on the stream before."""
    with torch.cuda.stream(stream):
        for _ in range(warmup):
            step()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        step()
    return graph.replay


def queued(step, iters):
    """As the benches time theirs, from one moment on."""
    torch.cuda.synchronize()
    dist.barrier()
    return clock.queued_ms(step, iters)


def slowest(values, device="cuda"):
    """The largest over all ranks of a number, or of each number of a list."""
    times = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return times.tolist()


def shard(model, free=True, ahead=0, sums=torch.float32, tail=False):
    """FSDP2 with a unit for every block, and the root. `free`: what was gathered is freed behind the forward, and
    gathered again for the backward. `ahead`: so many units are gathered while one works, asked for explicitly. `sums`: the dtype in
    which gradients are reduced. `tail`: norm and head are a unit of their own."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=sums, cast_forward_inputs=False)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy, reshard_after_forward=free)
    units = list(model.blocks)
    if tail:
        units.append(fully_shard(model.tail, mp_policy=policy, reshard_after_forward=False))
    fully_shard(model, mp_policy=policy)
    for place, unit in enumerate(units if ahead else ()):
        unit.set_modules_to_forward_prefetch(units[place + 1:place + 1 + ahead])
        unit.set_modules_to_backward_prefetch(units[max(place - ahead, 0):place][::-1])
