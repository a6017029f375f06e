# SPDX-License-Identifier: MIT
"""Layers shared by the GPUs of a host, by PyTorch's DTensor: the peer of bench_tp. Heads, the feed-forward and both vocabularies are
sharded, norms and the residual stream by rows (sequence parallelism), the loss over the vocabulary.

usage: python3 -m torch.distributed.run --standalone --nproc_per_node N tp.py FOLDER [--case NUMBER] [--small] [--gloo]"""
import contextlib
import gc
import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel,
                                               parallelize_module)

import load
import model as models
import parallel_cases
import ranks
from ranks import slowest
from record import provenance, reason_of

WARMUP, ITERS = 5, 10


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.head_dim = width // heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, y, cos, sin):
        q, k, v = (linear(y).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for linear in (self.q, self.k, self.v))
        q, k = models.rotate(q, cos, sin), models.rotate(k, cos, sin)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, y):
        return self.down(F.silu(self.gate(y)) * self.up(y))


class Block(nn.Module):
    """As in model.py, with both halves as modules, since rows are gathered in front of a module."""

    def __init__(self, width, inner, heads):
        super().__init__()
        self.norm_attention, self.norm_mlp = models.RMSNorm(width), models.RMSNorm(width)
        self.attention, self.mlp = Attention(width, heads), FeedForward(width, inner)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm_attention(x), cos, sin)
        return x + self.mlp(self.norm_mlp(x))


def shared(model, mesh):
    """Rows are gathered once for all products that read them; outputs of out and down are scattered into rows."""
    rows, whole = Shard(1), Replicate()
    warnings.filterwarnings("error", message="Parallelize plan key")  # one that names no module would leave it whole
    parallelize_module(model, mesh, {
        "embedding": RowwiseParallel(input_layouts=whole, output_layouts=rows), "tail.norm": SequenceParallel(),
        "tail.head": ColwiseParallel(input_layouts=rows, output_layouts=Shard(-1), use_local_output=False)})
    model.embedding.register_forward_hook(lambda module, inputs, x: x.clone())  # a tensor that is there, for compiled blocks
    plan = {f"attention.{name}": ColwiseParallel() for name in ("q", "k", "v")}
    plan |= {f"mlp.{name}": ColwiseParallel() for name in ("gate", "up")}
    plan |= {name: RowwiseParallel(output_layouts=rows) for name in ("attention.out", "mlp.down")}
    plan |= {name: SequenceParallel() for name in ("norm_attention", "norm_mlp")}
    plan["attention"] = PrepareModuleInput(input_layouts=(rows, None, None), desired_input_layouts=(whole, None, None))
    plan["mlp"] = PrepareModuleInput(input_layouts=(rows,), desired_input_layouts=(whole,))
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    return model


def compiled(model, mesh, mode):
    if mode == "async-graph":  # its rows go from peer to peer; multicast, which no product needs, is not set up
        os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
        from torch.distributed._symmetric_memory import enable_symm_mem_for_group
        enable_symm_mem_for_group(mesh.get_group().group_name)
        torch._inductor.config._micro_pipeline_tp = True
    models.compile_blocks(model, False)
    return model


@torch.no_grad()
def create(size, seq, device):
    """The same on all ranks, before it is shared. Billions of numbers are drawn where they stay: a core takes a minute for them."""
    torch.manual_seed(0)
    width, inner, _, heads = load.SIZES[size]
    with torch.device(device):
        model = models.LanguageModel(size, seq)
        model.blocks = nn.ModuleList(Block(width, inner, heads) for _ in model.blocks)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.normal_(0, 0.02)
    return model.to(torch.bfloat16)


def tokens_of(size, seq, batch, device):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, load.VOCAB, (batch, seq), generator=generator).to(device) for _ in range(2)]


def loss_of(model, inputs, targets):
    return F.cross_entropy(model(inputs).float().flatten(0, 1), targets.flatten())


def plain(loss):
    return float((loss.full_tensor() if hasattr(loss, "full_tensor") else loss).detach())


def measure(case, mesh, device, facts):
    mode, size, seq, batch, _ = case
    inputs, targets = tokens_of(size, seq, batch, device)
    model = create(size, seq, device)
    with torch.no_grad():
        whole = plain(loss_of(model, inputs, targets))
    model = compiled(shared(model, mesh), mesh, mode)
    graph = device == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=graph, capturable=graph)
    stream = torch.cuda.Stream() if graph else None

    def step():
        with loss_parallel():
            loss = loss_of(model, inputs, targets)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    gc.collect()
    gc.disable()
    if graph:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    beside = torch.cuda.stream(stream) if graph else contextlib.nullcontext()
    with beside:
        loss = plain(step())
    if not abs(loss - whole) <= 5e-3 * abs(whole):  # what is shared wrongly has another loss
        raise ValueError(f"the loss of the shared model is {loss:.6g}, that of the whole one {whole:.6g}")
    if not graph:
        return {"loss": loss, "note": "not timed on the CPU"}
    with beside:
        for _ in range(WARMUP - 1):
            loss = plain(step())
    failed = {}
    try:
        step = ranks.captured(step, stream)  # nothing of the host is left
        for _ in range(2):
            step()
    except RuntimeError as error:
        failed = {"mode": parallel_cases.TP_LAUNCHED[mode], "note": reason_of(error)}
    times = load.spread(slowest(ranks.queued(step, ITERS)))  # a sample is the slowest rank's
    step_ms = times["step_ms"]
    cells = {**times, "tokens_per_s": batch * seq / step_ms * 1e3, "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
             "loss": loss, "mfu_pct": load.mfu_pct(facts["gpu"], "bf16", size, seq, batch, step_ms) / mesh.size()}
    busy = load.gpu_busy_or_note(step, torch.cuda.synchronize, step_ms, facts["gpu_uuid"], agree=slowest)
    return {**cells, **busy, **failed}


def main():
    device = "cpu" if "--gloo" in sys.argv else "cuda"
    with ranks.job("tp", sys.argv[1], "gloo" if device == "cpu" else "nccl") as rows:
        facts = provenance()
        mesh = init_device_mesh(device, (dist.get_world_size(),))
        for case in parallel_cases.cases_of("tp", sys.argv):
            try:
                cells = measure(case, mesh, device, facts)
            except Exception as error:  # the same on every rank, or the job's timeout ends it
                cells = {"note": reason_of(error)}
            gc.enable()
            if rows:
                rows.add(**{**parallel_cases.tp_columns(case, mesh.size()), **cells})
            torch._dynamo.reset()
            gc.collect()
            if device == "cuda":
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
