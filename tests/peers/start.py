# SPDX-License-Identifier: MIT
"""Where the benches' steps start from: the same parameters and tokens, drawn as common/core/rng.c draws them, so that losses of a
peer can be compared with ours step by step. Streams and seeds are those of common/train/access.c and common/replica/data.c."""
import math

import torch

MASK = 0xFFFFFFFF
CHUNK = 1 << 22  # counters at a time
OURS = {"q": "attn.q_proj", "k": "attn.k_proj", "v": "attn.v_proj", "out": "attn.output_proj", "gate": "ffn.w1", "up": "ffn.w3",
        "down": "ffn.w2", "norm_attention": "ln1", "norm_mlp": "ln2"}
WHOLE = {"embedding": "token_embeddings", "norm": "ln_final", "head": "lm_head"}
FUSED = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}  # one product for several matrices: their rows, one below the other
TOKENS, RANK_IDS, RANK_TARGETS, BORDERS = 0x70CEF5, 0xDD9, 0xDDA, 32


def rng_hash(seed, text):
    wide = (1 << 64) - 1
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 & wide
    h = (h + seed * 0x9E3779B97F4A7C15) & wide
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & wide
    h = (h ^ h >> 27) * 0x94D049BB133111EB & wide
    return h ^ h >> 31


def multiply(constant, c):
    """High and low 32 bits of a product of 32-bit numbers that lie in int64."""
    high, low = constant >> 16, constant & 0xFFFF
    return (c * high + (c * low >> 16) >> 16) & MASK, c * constant & MASK


def philox(j, stream, kind, seed):
    """Four columns of 32-bit words, in int64, for each counter of j; four words for a number."""
    c0, c1, c2, c3 = j & MASK, j >> 32, 0 * j + stream, 0 * j + kind
    k0, k1 = seed & MASK, seed >> 32
    for _ in range(10):
        (high0, low0), (high1, low1) = multiply(0xD2511F53, c0), multiply(0xCD9E8D57, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + 0x9E3779B9 & MASK, k1 + 0xBB67AE85 & MASK
    return c0, c1, c2, c3


def box_muller(x0, x1):
    u = (x0.float() + 0.5) * 2.0**-32
    angle = 6.2831853 * ((x1.float() + 0.5) * 2.0**-32)
    radius = torch.sqrt(-2 * torch.log(u))
    return radius * torch.cos(angle), radius * torch.sin(angle)


def fill_normal(flat, seed, scale):
    """N(0,1) * scale into a contiguous fp32 tensor of one dimension."""
    for first in range(0, flat.numel(), 4 * CHUNK):
        part = flat[first:first + 4 * CHUNK]
        words = philox(torch.arange(first // 4, first // 4 + -(-part.numel() // 4), device=flat.device), 0, 0, seed)
        part.copy_(torch.stack((*box_muller(*words[:2]), *box_muller(*words[2:])), -1).flatten()[:part.numel()]).mul_(scale)


def uniform_ids(count, seed, stream, first, vocab, device):
    x0, x1, _, _ = philox(torch.arange(first, first + count, device=device), stream, 1, seed)
    return (((x0 << 21 | x1 >> 11).double() * 2.0**-53) * vocab).long()


def document_borders(count, total, lengths, seed=1):
    """Begins of the packed documents of bench_flash with this --seed, and the end of the last (bench/attention/documents.c)."""
    def border(i):
        if lengths == "equal":
            return total * i // count
        x0, x1, _, _ = philox(i, BORDERS, 1, rng_hash(seed, "lengths"))
        return int((x0 << 21 | x1 >> 11) * 2.0**-53 * (total + 1))
    return [0, *sorted(map(border, range(1, count))), total]


def our_names(name):
    """Ours of a parameter of model.py: several of a product that was fused."""
    parts = name.split(".")
    if parts[0] == "blocks":
        return [f"layers.{parts[1]}.{OURS[part]}.weight" for part in FUSED.get(parts[2], (parts[2],))]
    return [f"{WHOLE[parts[-2]]}.weight"]


@torch.no_grad()
def fill_parameters(model, seed=1):
    """As a bench with this --seed begins."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.fill_(1)
            continue
        names = our_names(name)
        for ours, rows in zip(names, parameter.chunk(len(names))):
            std = 1.0 if name.startswith("embedding") else math.sqrt(2 / sum(rows.shape))
            values = torch.empty(rows.numel(), device=rows.device)
            fill_normal(values, rng_hash(seed, ours), std)
            rows.copy_(values.view(rows.shape))


def batch(count, seq, vocab, device, seed=1):
    """Tokens and targets of bench_transformer, each (count, seq)."""
    ids = uniform_ids(2 * count * seq, seed, TOKENS, 0, vocab, device).view(2, count, seq)
    return ids[0], ids[1]


def batch_of_rank(count, seq, vocab, rank, device, seed=1):
    """Of the benches of several GPUs."""
    first = rank * count * seq
    return tuple(uniform_ids(count * seq, seed, stream, first, vocab, device).view(count, seq) for stream in (RANK_IDS, RANK_TARGETS))
