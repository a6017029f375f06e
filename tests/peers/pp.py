# SPDX-License-Identifier: MIT
"""A training step whose layers are shared by ranks, by torch.distributed.pipelining: the peer of bench_pp. A step is forward and backward
of all micro-batches by one of its schedules, and an update on each rank. Everything is bf16, sums of gradients and moments too.

usage: launch.py RANKS pp.py FOLDER --case NUMBER [--small]"""
import contextlib
import gc
import os
import statistics
import sys
from datetime import timedelta

import load
import parallel_cases
from record import Rows, provenance, reason_of

WARMUP, SAMPLES = 4, 10


def compiled_pieces():
    """What lies between a block's parameters, compiled once for all blocks. A backward in two halves is divided where a parameter is used,
    and that of a compiled block is not divided."""
    import torch
    import torch.nn.functional as F

    import model as models

    def mix(q, k, v, cos, sin, heads):
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (q, k, v))
        q, k = models.rotate(q, cos, sin), models.rotate(k, cos, sin)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

    return [torch.compile(piece, dynamic=False) for piece in (mix, lambda gate, up: F.silu(gate) * up)]


def in_pieces(block, mix, gated):
    import torch.nn.functional as F
    from torch import nn

    def normed(norm, x):
        return F.rms_norm(x, x.shape[-1:], norm.weight, 1e-5)

    class Pieces(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = block

        def forward(self, x, cos, sin):
            y = normed(block.norm_attention, x)
            x = x + block.out(mix(block.q(y), block.k(y), block.v(y), cos, sin, block.heads))
            y = normed(block.norm_mlp, x)
            return x + block.down(gated(block.gate(y), block.up(y)))

    return Pieces()


def stages_of(whole, case, rank, ranks):
    """The stages of a rank: with zb-v the second one lies on the way back."""
    import torch
    from torch import nn

    class Stage(nn.Module):
        def __init__(self, first, end):
            super().__init__()
            self.embedding = whole.embedding if first == 0 else None
            self.blocks = nn.ModuleList(whole.blocks[first:end])
            self.norm, self.head = (whole.tail.norm, whole.tail.head) if end == len(whole.blocks) else (None, None)
            self.register_buffer("cos", whole.cos, persistent=False)
            self.register_buffer("sin", whole.sin, persistent=False)

        def forward(self, x):
            if self.embedding is not None:
                x = self.embedding(x)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            return x if self.head is None else self.head(self.norm(x))

    count = 2 * ranks if case.impl == "zb-v" else ranks
    places = [rank, count - 1 - rank] if case.impl == "zb-v" else [rank]
    layers, out = len(whole.blocks), []
    pieces = compiled_pieces() if case.mode == "pieces-graph" else None
    for place in places:
        stage = Stage(layers * place // count, layers * (place + 1) // count)
        for i, block in enumerate(stage.blocks):
            stage.blocks[i] = in_pieces(block, *pieces) if pieces else torch.compile(block, dynamic=False)
        out.append((place, stage))
    return count, out


def graphs_of(stage, like, count):
    """The stage with CUDA graphs of its forward and backward, one pair for each micro-batch in flight: they are used in turn, and each has
    memory of its own. Gradients are added to what is there, since a graph's own are overwritten when it runs again."""
    import copy

    import torch
    from torch import nn

    class Graphs(nn.Module):
        def __init__(self):
            super().__init__()
            self.stage, self.turn = stage, 0

        def forward(self, x):
            self.turn = (self.turn + 1) % count
            return pairs[self.turn](x)

    pairs = [torch.cuda.make_graphed_callables(copy.copy(stage), (like.clone().requires_grad_(like.is_floating_point()),))
             for _ in range(count)]
    for parameter in stage.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return Graphs()


def whole_loss(whole, inputs, targets):
    """Of the model that is not cut, the mean of the micro-batches."""
    import torch

    import model as models
    with torch.no_grad():
        return statistics.mean(float(models.loss_of(whole, x.unsqueeze(0), y.unsqueeze(0))) for x, y in zip(inputs, targets))


def schedule_of(case, stages):
    import torch.nn.functional as F
    from torch.distributed.pipelining import Schedule1F1B
    from torch.distributed.pipelining.schedules import ScheduleZBVZeroBubble

    def loss(out, target):
        return F.cross_entropy(out.float().flatten(0, 1), target.flatten())

    if case.impl == "zb-v":
        return ScheduleZBVZeroBubble(stages, case.micro_batches, loss_fn=loss)
    return Schedule1F1B(stages[0], case.micro_batches, loss_fn=loss)


def allow_split_backward():
    """A backward in two halves reads what a compiled backward would have given back to the allocator."""
    try:
        import torch._functorch.config
        torch._functorch.config.donated_buffer = False
    except (ImportError, AttributeError):
        pass


def measure(case):
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage

    import model as models
    from ranks import captured, slowest
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", torch.cuda.current_device())
    allow_split_backward()
    inputs, targets = models.batch_of(case.micro_batches, case.seq)
    whole = models.create(case.size, case.seq).bfloat16()
    wanted = whole_loss(whole, inputs, targets)
    count, parts = stages_of(whole, case, rank, ranks)
    width = whole.embedding.embedding_dim
    del whole
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    if case.mode == "graph":
        like = inputs[:1] if rank == 0 else torch.zeros(1, case.seq, width, dtype=torch.bfloat16, device=device)
        parts = [(place, graphs_of(stage, like, ranks - rank)) for place, stage in parts]
    stages = [PipelineStage(module, place, count, device) for place, module in parts]
    schedule = schedule_of(case, stages)
    parameters = [p for _, module in parts for p in module.parameters()]
    whole_step = case.mode == "pieces-graph"
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True, capturable=whole_step)
    first, last = any(place == 0 for place, _ in parts), any(place == count - 1 for place, _ in parts)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    losses, stream, failed = [], torch.cuda.Stream(), {}

    def work():
        losses.clear()
        schedule.step(*([inputs] if first else []), **({"target": targets, "losses": losses} if last else {}))
        optimizer.step()
        optimizer.zero_grad(set_to_none=case.mode != "graph")

    def step():
        dist.barrier()
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end), statistics.mean(map(float, losses)) if last else 0.0

    gc.disable()
    with torch.cuda.stream(stream) if whole_step else contextlib.nullcontext():
        begun = step()[1]
        for _ in range(WARMUP - 1):
            step()
        if whole_step:
            try:
                work = captured(work, stream)
            except RuntimeError as error:
                failed = {"mode": parallel_cases.PP_LAUNCHED[case.mode], "note": reason_of(error)}
        samples = [step() for _ in range(SAMPLES)]
    gc.enable()
    times = load.spread(slowest([ms for ms, _ in samples]))  # a sample is the slowest rank's
    step_ms, here = times["step_ms"], provenance()
    # What rank 0 writes: the loss is that of the one rank that has it, memory that of the first and of the last stage.
    peak = torch.cuda.max_memory_allocated() / 2**30
    facts = torch.tensor([begun, samples[-1][1], peak if first else 0.0, peak if last else 0.0], dtype=torch.float64, device="cuda")
    dist.all_reduce(facts)
    begun, loss, peak_first, peak_last = facts.tolist()
    with torch.cuda.stream(stream) if whole_step else contextlib.nullcontext():
        busy = load.gpu_busy_or_note(work, torch.cuda.synchronize, step_ms, here["gpu_uuid"], agree=slowest)
    mfu = load.mfu_pct(here["gpu"], "bf16", case.size, case.seq, case.micro_batches, step_ms) / ranks
    return {**times, "peak_gib_first": peak_first, "peak_gib_last": peak_last, "loss": loss, "loss_diff": abs(begun - wanted) / wanted,
            "mfu_pct": mfu, **busy, **failed}


def be_a_rank(case, folder):
    import torch
    import torch.distributed as dist

    load.pin(int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"]))
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", timeout=timedelta(seconds=case.seconds), device_id=torch.device("cuda", torch.cuda.current_device()))
    cells = measure(case)
    if dist.get_rank() == 0:
        Rows("pp", folder).add(**{**parallel_cases.pp_columns(case, dist.get_world_size()), **cells})
    dist.destroy_process_group()


if __name__ == "__main__":
    be_a_rank(parallel_cases.cases_of("pp", sys.argv)[0], sys.argv[1])
