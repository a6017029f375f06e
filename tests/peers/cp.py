# SPDX-License-Identifier: MIT
"""Attention whose sequence is shared by ranks, by PyTorch: the peer of bench_cp. Each rank has S/n tokens; an all-to-all over NCCL
gives it all tokens of an n-th of the heads, one of PyTorch's backends computes them, and another all-to-all gives o back.

usage: python3 -m torch.distributed.run --standalone --nproc_per_node N cp.py FOLDER [--small]"""
import statistics
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import ranks
from load import spread
from ranks import slowest
from record import reason_of

BACKENDS = {"sdpa_cudnn": SDPBackend.CUDNN_ATTENTION, "sdpa_fa2": SDPBackend.FLASH_ATTENTION}
POLICY = "all_to_all_single of q, k, v and of o; backward by autograd"
CASES = [  # heads, heads_kv, seq, head_dim, causal: those of bench_cp's run lists
    (16, 16, 65536, 128, 1), (16, 16, 131072, 128, 1), (16, 16, 32768, 128, 1), (16, 16, 16384, 128, 1), (32, 8, 32768, 128, 1),
    (32, 8, 32768, 128, 0)]
SMALL = [(16, 16, 4096, 128, 1)]
WARMUP, SAMPLES = 3, 10


class Exchange(torch.autograd.Function):
    """(tokens of a rank, all heads, D) to (all tokens, heads of a rank, D), or back; the gradient goes the other way."""

    @staticmethod
    def forward(ctx, x, to_heads):
        ctx.to_heads, n = to_heads, dist.get_world_size()
        if to_heads:
            tokens, heads, columns = x.shape
            sent = x.view(tokens, n, heads // n, columns).transpose(0, 1).contiguous()
            got = torch.empty_like(sent)
            dist.all_to_all_single(got, sent)
            return got.view(n * tokens, heads // n, columns)
        tokens, heads, columns = x.shape
        sent, got = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
        dist.all_to_all_single(got, sent)
        return got.view(n, tokens // n, heads, columns).transpose(0, 1).reshape(tokens // n, n * heads, columns)

    @staticmethod
    def backward(ctx, grad):
        return Exchange.apply(grad, not ctx.to_heads), None


def attention(q, k, v, causal):
    """Of (S, H, D) tensors."""
    q, k, v = (t.transpose(0, 1).unsqueeze(0) for t in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), enable_gqa=q.shape[1] != k.shape[1])
    return out.squeeze(0).transpose(0, 1)


def shared(q, k, v, causal):
    return Exchange.apply(attention(*(Exchange.apply(t, True) for t in (q, k, v)), causal), False)


def passes(function, inputs, grad, together):
    """Forward and backward in ms, by sample; with `together` each begins after a barrier, and is its slowest rank's."""
    samples = []
    for i in range(WARMUP + SAMPLES):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        if together:
            dist.barrier()
        marks[0].record()
        out = function(*inputs)
        marks[1].record()
        if together:
            dist.barrier()
        marks[2].record()
        torch.autograd.grad(out, inputs, grad)
        marks[3].record()
        torch.cuda.synchronize()
        if i >= WARMUP:
            samples.append((marks[0].elapsed_time(marks[1]), marks[2].elapsed_time(marks[3])))
    return slowest(samples) if together else samples


def medians(samples):
    return [statistics.median(column) for column in zip(*samples)]


def difference(got, want):
    return (torch.linalg.vector_norm(got.float() - want.float()) / torch.linalg.vector_norm(want.float())).item()


def tensors(heads, heads_kv, seq, head_dim):
    """The whole sequence, the same on every rank: q, k, v and the gradient of o."""
    make = torch.Generator("cuda").manual_seed(1)
    return [torch.randn(seq, h, head_dim, generator=make, device="cuda", dtype=torch.bfloat16) for h in (heads, heads_kv, heads_kv, heads)]


def measure(heads, heads_kv, seq, head_dim, causal):
    rank, n = dist.get_rank(), dist.get_world_size()
    mine = slice(rank * seq // n, (rank + 1) * seq // n)
    *whole, grad = tensors(heads, heads_kv, seq, head_dim)
    parts = [t[mine].clone().requires_grad_() for t in whole]
    whole = [t.requires_grad_() for t in whole]
    out = attention(*whole, causal)
    own = shared(*parts, causal)
    fwd_diff = slowest(difference(own, out[mine]))
    wanted, got = torch.autograd.grad(out, whole, grad), torch.autograd.grad(own, parts, grad[mine])
    bwd_diff = slowest(max(difference(a, b[mine]) for a, b in zip(got, wanted)))
    del out, own, wanted, got
    one_fwd, one_bwd = medians(passes(lambda *t: attention(*t, causal), whole, grad, False))
    samples = passes(lambda *t: shared(*t, causal), parts, grad[mine].contiguous(), True)
    fwd, bwd = medians(samples)
    both = spread([sum(sample) for sample in samples])
    return {"fwd_ms": fwd, "bwd_ms": bwd, "both_p10_ms": both["step_p10_ms"], "both_p90_ms": both["step_p90_ms"], "one_fwd_ms": one_fwd,
            "one_bwd_ms": one_bwd, "fwd_diff": fwd_diff, "bwd_diff": bwd_diff}


def cp(rows, cases):
    for heads, heads_kv, seq, head_dim, causal in cases:
        for impl, backend in BACKENDS.items():
            try:
                with sdpa_kernel(backend):
                    cells = measure(heads, heads_kv, seq, head_dim, causal)
            except RuntimeError as error:  # the same on every rank, or the job's timeout ends it
                cells = {"note": reason_of(error)}
            if rows:
                rows.add(bench="cp", impl=impl, ranks=dist.get_world_size(), dtype="bf16", batch=1, heads=heads, heads_kv=heads_kv, seq=seq,
                         head_dim=head_dim, causal=causal, mode="eager", policy=POLICY, **cells)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    with ranks.job("cp", sys.argv[1]) as made:
        cp(made, SMALL if "--small" in sys.argv else CASES)
