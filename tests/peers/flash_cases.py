# SPDX-License-Identifier: MIT
"""The problems of attention that peers and ours are given, the plain ones first. Needs no PyTorch."""
import collections

# `window`: keys before its own position that a query sees, -1: all. `documents` share the tokens of the batch, packed, 0: none; their
# `lengths` are those of bench_flash. `deterministic` cases are of the backward alone. `head_dim_v` is 0 where it is `head_dim`.
Case = collections.namedtuple("Case", "kind dtype batch heads heads_kv seq head_dim head_dim_v causal window documents lengths deterministic")
KINDS = ("plain", "window", "documents", "deterministic")


def plain(dtype, batch, heads, heads_kv, seq, head_dim, causal, head_dim_v=0):
    return Case("plain", dtype, batch, heads, heads_kv, seq, head_dim, head_dim_v, causal, -1, 0, "equal", 0)


def masked(kind, batch, seq, head_dim, heads=16, **differs):
    return plain("bf16", batch, heads, heads, seq, head_dim, 1)._replace(kind=kind, **differs)


# With FlashAttention-4 the plain ones take 240 s on an H100.
CASES = [
    # those in which FlashAttention-4 is or was nearest
    *(plain("bf16", 8, 16, 16, 2048, head_dim, 1) for head_dim in (128, 96)), plain("bf16", 16, 16, 16, 512, 128, 1),
    *(plain("bf16", 1, 16, 16, 8192, 192, mask) for mask in (1, 0)), plain("bf16", 1, 32, 32, 16384, 64, 1),
    plain("bf16", 1, 8, 8, 131072, 128, 1), plain("bf16", 4, 16, 16, 4096, 128, 0),
    *(plain("bf16", 1, 16, 16, 16384, 64, mask) for mask in (1, 0)),
    # others of the report's tables
    plain("bf16", 1, 16, 16, 16384, 128, 1), plain("bf16", 4, 25, 25, 1024, 64, 1), plain("bf16", 1, 16, 16, 16384, 128, 0),
    plain("bf16", 1, 32, 8, 8192, 128, 1), plain("bf16", 8, 32, 32, 2048, 64, 1), plain("bf16", 1, 16, 16, 32768, 128, 1),
    # what nobody names: narrow and wide heads, no mask, many short sequences
    plain("bf16", 8, 16, 16, 2048, 80, 1), plain("bf16", 8, 16, 16, 2048, 128, 0), plain("bf16", 16, 16, 16, 512, 64, 1),
    *(plain("bf16", 1, 16, 16, 8192, head_dim, mask, head_dim_v) for head_dim, head_dim_v in ((256, 0), (192, 128)) for mask in (1, 0)),
    *(plain("fp32", 8, 16, 16, seq, head_dim, 1) for head_dim in (64, 128) for seq in (2048, 1024)),
    *(plain(dtype, 1, 1, 1, 16384, head_dim, 1) for dtype in ("bf16", "fp32") for head_dim in (64, 128)),
    # rows of bench_flash's own list
    *(masked("window", 1, 16384, head_dim, window=window) for head_dim, window in ((128, 1024), (128, 4096), (64, 1024))),
    *(masked("documents", 8, 2048, head_dim, documents=8, lengths="random") for head_dim in (128, 64)),
    *(masked("deterministic", 1, seq, head_dim, deterministic=1) for seq, head_dim in ((16384, 128), (16384, 64), (8192, 192), (8192, 256))),
]
SMALL = [plain("bf16", 1, 4, 4, 1024, 64, 1), plain("bf16", 1, 4, 2, 1024, 128, 0), plain("fp32", 1, 4, 4, 1024, 64, 1),
         masked("window", 1, 1024, 64, 4, window=100), masked("documents", 2, 1024, 64, 4, documents=5, lengths="random"),
         masked("deterministic", 1, 1024, 64, 4, deterministic=1)]


def columns(case):
    """Of its row; the kind is what the others say."""
    return {"bench": "flash_interleaved", "mode": "graph", **{name: value for name, value in case._asdict().items() if name != "kind"}}


def tokens(case):
    """Batch and sequence length of the tensors: packed documents are one sequence."""
    return (1, case.batch * case.seq) if case.documents else (case.batch, case.seq)


def pairs(case, borders):
    """Of a query and a key for one head, as operations are counted: in a window those that are not masked, of a causal mask half."""
    batch, _ = tokens(case)
    lengths = [end - begin for begin, end in zip(borders, borders[1:])]
    if case.window < 0:
        return batch * sum(length**2 for length in lengths) * (0.5 if case.causal else 1)
    return batch * sum((last + 1) * length - last * (last + 1) / 2 for length in lengths for last in [min(case.window, max(length - 1, 0))])
