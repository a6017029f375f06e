#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the golden models of test_model.c with PyTorch (needs torch and numpy):

  make_golden_model.py OUTDIR                        the models that are committed
  make_golden_model.py OUTDIR --random 6 --seed 1    so many others, whose sizes are drawn

The transformer of CS336 (pre-norm RMSNorm, rotary embedding of interleaved pairs, causal attention with grouped heads,
SwiGLU, an untied head, no biases; without heads its blocks are feed-forward alone) and three steps of torch.optim.AdamW, computed in float64 by autograd from fp32
parameters, and rounded to fp32 when written. Parameters and tokens are not stored: both sides draw them from the Philox
generator of common/core/rng.h, exactly. With u(stream, i) = rng_uniform(SEED, stream, i) and t the index of a tensor in
the order below:
  linear weight   fp32 of (2 u(t, i) - 1) sqrt(6 / (rows + columns))
  embedding       fp32 of (2 u(t, i) - 1) sqrt(3)
  gain of a norm  fp32 of 1 + (2 u(t, i) - 1) / 2
  ids, targets of step s: floor(vocab u(1000 + s, i)) for i < B S, and for B S <= i < 2 B S
Order of tensors, as in common/model/params.h: lm_head, ln_final, then for each block from the last to the first w2, w1,
w3, ln2, output, q, k, v, ln1, and at last the embedding; blocks without attention end with ln2.

Writes model_<name>.bin a model, and MANIFEST_MODEL with the versions used and a checksum of each file. Format of a .bin,
little-endian, no padding:
  8 bytes   "SBMODEL1"
  10 int32  vocab, d_model, d_ff, layers, heads, heads_kv, seq, batch, steps, tensors
  float64   mean loss of each step before its update (steps)
  float32   logits of the first step (B, S, V)
  float32   gradient of each tensor in the first step, one after another in the order above, without padding
  float32   parameters after all steps, likewise
  float64   what bf16 costs PyTorch itself: relative L2 error of (logits, then each gradient) of the first step under
            torch.autocast(bfloat16), tensors + 1 of them, and the same for a model that is bf16 throughout
"""
import argparse
import hashlib
import math
import os
import platform
import random

import numpy
import torch
import torch.nn.functional as F

# name: vocab, d_model, d_ff, layers, heads, heads_kv, seq, batch
MODELS = {
    "two_blocks": (23, 32, 40, 2, 2, 2, 13, 2),
    "grouped": (17, 64, 16, 1, 4, 2, 9, 3),
    "mlp": (19, 32, 24, 2, 0, 0, 7, 2),
}
SEED, STEPS, THETA, NORM_EPS = 20260101, 3, 10000.0, 1e-5
ADAMW = {"lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}


def philox(counter, key):
    """Philox4x32-10 of four uint64 arrays that hold 32-bit words, and two key words."""
    mask = numpy.uint64(0xFFFFFFFF)
    c0, c1, c2, c3 = counter
    k0, k1 = (numpy.uint64(k) for k in key)
    for _ in range(10):
        p0, p1 = numpy.uint64(0xD2511F53) * c0, numpy.uint64(0xCD9E8D57) * c2
        c0, c1 = (p1 >> numpy.uint64(32)) ^ c1 ^ k0, p1 & mask
        c2, c3 = (p0 >> numpy.uint64(32)) ^ c3 ^ k1, p0 & mask
        k0, k1 = (k0 + numpy.uint64(0x9E3779B9)) & mask, (k1 + numpy.uint64(0xBB67AE85)) & mask
    return c0, c1, c2, c3


def uniform(stream, count):
    """rng_uniform(SEED, stream, i) for i in [0, count): 53 bits in [0, 1)."""
    i = numpy.arange(count, dtype=numpy.uint64)
    zero, one = numpy.zeros_like(i), numpy.ones_like(i)
    x0, x1, _, _ = philox((i, zero, one * numpy.uint64(stream), one), (SEED & 0xFFFFFFFF, SEED >> 32))
    bits = (x0 << numpy.uint64(32)) | x1
    return (bits >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-53


def check_philox():
    """A known answer of the Random123 library."""
    counter = [numpy.array([c], dtype=numpy.uint64) for c in (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)]
    got = [int(w[0]) for w in philox(counter, (0xA4093822, 0x299F31D0))]
    assert got == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def tensor_shapes(vocab, d, d_ff, layers, heads, heads_kv):
    """(name, shape) in the order of the index space."""
    kv = d // heads * heads_kv if heads else 0
    shapes = [("lm_head", (vocab, d)), ("ln_final", (d,))]
    for layer in reversed(range(layers)):
        block = [("w2", (d, d_ff)), ("w1", (d_ff, d)), ("w3", (d_ff, d)), ("ln2", (d,))]
        block += [("o", (d, d)), ("q", (d, d)), ("k", (kv, d)), ("v", (kv, d)), ("ln1", (d,))] if heads else []
        shapes += [(f"{layer}.{name}", shape) for name, shape in block]
    return shapes + [("embedding", (vocab, d))]


def draw_parameters(shapes):
    drawn = {}
    for index, (name, shape) in enumerate(shapes):
        x = 2 * uniform(index, math.prod(shape)) - 1
        if name == "embedding":
            x = x * math.sqrt(3.0)
        elif len(shape) == 1:
            x = 1 + x / 2
        else:
            x = x * math.sqrt(6.0 / (shape[0] + shape[1]))
        drawn[name] = torch.from_numpy(x.astype(numpy.float32).reshape(shape))
    return drawn


def draw_tokens(step, vocab, batch, seq):
    drawn = torch.from_numpy((uniform(1000 + step, 2 * batch * seq) * vocab).astype(numpy.int64))
    return drawn[: batch * seq].reshape(batch, seq), drawn[batch * seq :].reshape(batch, seq)


def rmsnorm(x, gain):
    wide = x if x.dtype == torch.float64 else x.float()
    return (wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + NORM_EPS)).to(x.dtype) * gain


def rope(x):
    """x is (B, H, S, D); pair i of a head is (x[2i], x[2i+1])."""
    seq, head_dim = x.shape[2], x.shape[3]
    frequency = THETA ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle = torch.arange(seq, dtype=torch.float64)[:, None] * frequency
    cosine, sine = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1).flatten(3)


def attention(n, w, heads, heads_kv):
    batch, seq, _ = n.shape

    def split(y, count):
        return y.reshape(batch, seq, count, -1).transpose(1, 2)

    q, k = rope(split(F.linear(n, w["q"]), heads)), rope(split(F.linear(n, w["k"]), heads_kv))
    v = split(F.linear(n, w["v"]), heads_kv)
    k, v = (y.repeat_interleave(heads // heads_kv, dim=1) for y in (k, v))
    visible = torch.ones(seq, seq, dtype=torch.bool).tril()
    scores = (q @ k.transpose(2, 3) / q.shape[3] ** 0.5).masked_fill(~visible, float("-inf"))
    return F.linear((torch.softmax(scores, dim=3) @ v).transpose(1, 2).reshape(batch, seq, -1), w["o"])


def forward(p, ids, layers, heads, heads_kv):
    x = p["embedding"][ids]
    for layer in range(layers):
        w = {name.split(".")[1]: y for name, y in p.items() if name.startswith(f"{layer}.")}
        if heads:
            x = x + attention(rmsnorm(x, w["ln1"]), w, heads, heads_kv)
        n = rmsnorm(x, w["ln2"])
        x = x + F.linear(F.silu(F.linear(n, w["w1"])) * F.linear(n, w["w3"]), w["w2"])
    return F.linear(rmsnorm(x, p["ln_final"]), p["lm_head"])


def loss_of(logits, targets):
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(wide.flatten(0, 1), targets.flatten())


def first_step(drawn, dtype, tokens, dims):
    """Logits and gradients of the first step with parameters of a dtype."""
    p = {name: x.to(dtype, copy=True).requires_grad_() for name, x in drawn.items()}
    logits = forward(p, tokens[0], *dims)
    loss_of(logits, tokens[1]).backward()
    return [logits.detach()] + [p[name].grad for name in drawn]


def errors(got, reference):
    return [float((g.double() - r).norm() / r.norm()) for g, r in zip(got, reference)]


def make_model(path, vocab, d, d_ff, layers, heads, heads_kv, seq, batch):
    shapes = tensor_shapes(vocab, d, d_ff, layers, heads, heads_kv)
    dims = (layers, heads, heads_kv)
    drawn = draw_parameters(shapes)
    p = {name: x.double().requires_grad_() for name, x in drawn.items()}
    optimizer = torch.optim.AdamW(p.values(), **ADAMW)
    losses, first = [], None
    for step in range(STEPS):
        ids, targets = draw_tokens(step, vocab, batch, seq)
        optimizer.zero_grad()
        logits = forward(p, ids, *dims)
        loss = loss_of(logits, targets)
        loss.backward()
        losses.append(loss.item())
        first = first or [logits.detach()] + [x.grad.clone() for x in p.values()]
        optimizer.step()
    tokens = draw_tokens(0, vocab, batch, seq)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        autocast = errors(first_step(drawn, torch.float32, tokens, dims), first)
    pure = errors(first_step(drawn, torch.bfloat16, tokens, dims), first)
    header = [vocab, d, d_ff, layers, heads, heads_kv, seq, batch, STEPS, len(shapes)]
    with open(path, "wb") as f:
        f.write(b"SBMODEL1")
        f.write(numpy.array(header, "<i4").tobytes())
        f.write(numpy.array(losses, "<f8").tobytes())
        for x in first + [x.detach() for x in p.values()]:
            f.write(x.numpy().astype("<f4").tobytes())
        f.write(numpy.array(autocast + pure, "<f8").tobytes())
    return f"losses {losses}; bf16 error of a gradient at most {max(autocast[1:]):.1e} autocast, {max(pure[1:]):.1e} pure"


def draw_model(draw):
    """Sizes as in MODELS: heads of 16 to 64 columns, short sequences and longer ones, widths of no round number."""
    heads_kv, group, head_dim = draw.randint(1, 3), draw.choice((1, 1, 2, 4)), 8 * draw.randint(2, 8)
    return (draw.randint(2, 200), heads_kv * group * head_dim, draw.randint(1, 150), draw.randint(1, 3), heads_kv * group, heads_kv,
            draw.choice((draw.randint(2, 16), draw.randint(17, 80))), draw.randint(1, 4))


def parse():
    parser = argparse.ArgumentParser(prog="make_golden_model.py")
    parser.add_argument("out", metavar="OUTDIR")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N models of random sizes instead of the committed ones")
    parser.add_argument("--seed", type=int, default=1, help="of these sizes")
    return parser.parse_args()


def main():
    options = parse()
    check_philox()
    out, models, source = options.out, MODELS, ""
    if options.random:
        torch.set_num_threads(min(4, torch.get_num_threads()))  # the models are small, and other tests run beside
        draw = random.Random(options.seed)
        models = {f"random_{options.seed}_{i + 1}": draw_model(draw) for i in range(options.random)}
        source = f", sizes of seed {options.seed}"
    os.makedirs(out, exist_ok=True)
    lines = [f"torch {torch.__version__}, numpy {numpy.__version__}, python {platform.python_version()}, float64 on CPU{source}",
             "sha256 file vocab d_model d_ff layers heads heads_kv seq batch"]
    for name, model in models.items():
        path = os.path.join(out, f"model_{name}.bin")
        print(name, make_model(path, *model))
        with open(path, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
        lines.append(" ".join([digest, f"model_{name}.bin", *map(str, model)]))
    with open(os.path.join(out, "MANIFEST_MODEL"), "w") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
