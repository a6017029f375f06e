#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the golden tensors of test_golden.c with PyTorch: python3 make_golden.py OUTDIR (needs torch and numpy).

Attention and its gradients are computed in float64 by autograd from fp32 inputs (in one case rounded to bf16 first).
Writes one <case>.bin a case, and MANIFEST with the versions used and a checksum of each file.

Format of a .bin, little-endian, no padding:
  8 bytes   "SBGOLD01"
  8 int32   batch, heads, heads_kv, seq_q, seq_k, head_dim, causal (0/1), input dtype (0 bf16, 3 fp32)
  float32   q (B,H,Sq,D), k (B,Hkv,Sk,D), v (B,Hkv,Sk,D), d_o (B,H,Sq,D)
  float64   o (B,H,Sq,D), lse (B,H,Sq), dq (B,H,Sq,D), dk (B,Hkv,Sk,D), dv (B,Hkv,Sk,D)
The scale is 1/sqrt(head_dim). Causal masks are aligned at the bottom right; a query that sees no key has o = 0,
lse = -inf and no gradient.
"""
import hashlib
import os
import platform
import sys

import numpy
import torch

# name: B, H, Hkv, Sq, Sk, D, causal, input dtype
CASES = {
    "full": (1, 1, 1, 17, 17, 16, 0, "fp32"),
    "causal_batch": (2, 2, 2, 33, 33, 32, 1, "fp32"),
    "causal_more_keys": (1, 2, 1, 7, 37, 24, 1, "fp32"),
    "causal_more_queries": (1, 2, 2, 37, 19, 16, 1, "fp32"),
    "gqa_6_2": (1, 6, 2, 33, 33, 16, 1, "fp32"),
    "one_query": (1, 8, 1, 1, 65, 16, 1, "fp32"),
    "d80": (1, 1, 1, 49, 49, 80, 1, "fp32"),
    "d128": (1, 1, 1, 33, 65, 128, 0, "fp32"),
    "bf16": (1, 2, 1, 65, 65, 32, 1, "bf16"),
}
DTYPES = {"bf16": 0, "fp32": 3}


def attention(q, k, v, causal):
    """o and lse in the dtype of the inputs, straight from the definition."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    seq_q, seq_k = q.shape[2], k.shape[2]
    visible = torch.ones(seq_q, seq_k, dtype=torch.bool)
    if causal:
        visible = visible.tril(diagonal=seq_k - seq_q)
    blind = ~visible.any(dim=1, keepdim=True)
    scores = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
    # A blind row keeps finite scores until its result is replaced: softmax of nothing would put NaN into gradients.
    scores = scores.masked_fill(~visible & ~blind, float("-inf"))
    o = (torch.softmax(scores, dim=3) @ v).masked_fill(blind, 0.0)
    lse = torch.logsumexp(scores, dim=3).masked_fill(blind[:, 0], float("-inf"))
    if not blind.any():
        builtin = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        assert torch.allclose(o, builtin, rtol=1e-12, atol=1e-13)
    return o, lse


def make_case(path, index, batch, heads, heads_kv, seq_q, seq_k, head_dim, causal, dtype):
    generator = torch.Generator().manual_seed(1000 + index)
    query_shape, key_shape = (batch, heads, seq_q, head_dim), (batch, heads_kv, seq_k, head_dim)
    inputs = [torch.randn(s, generator=generator) for s in (query_shape, key_shape, key_shape, query_shape)]
    if dtype == "bf16":
        inputs = [x.bfloat16().float() for x in inputs]
    q, k, v = (x.double().requires_grad_() for x in inputs[:3])
    o, lse = attention(q, k, v, causal)
    o.backward(inputs[3].double())
    with open(path, "wb") as f:
        f.write(b"SBGOLD01")
        f.write(numpy.array([batch, heads, heads_kv, seq_q, seq_k, head_dim, causal, DTYPES[dtype]], "<i4").tobytes())
        for x in inputs:
            f.write(x.numpy().astype("<f4").tobytes())
        for x in (o, lse, q.grad, k.grad, v.grad):
            f.write(x.detach().numpy().astype("<f8").tobytes())


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_golden.py OUTDIR")
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    lines = [f"torch {torch.__version__}, numpy {numpy.__version__}, python {platform.python_version()}, float64 on CPU",
             "sha256 file batch heads heads_kv seq_q seq_k head_dim causal dtype"]
    for index, (name, case) in enumerate(CASES.items()):
        path = os.path.join(out, name + ".bin")
        make_case(path, index, *case)
        with open(path, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
        lines.append(" ".join([digest, name + ".bin", *map(str, case)]))
    with open(os.path.join(out, "MANIFEST"), "w") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
