# SPDX-License-Identifier: MIT
"""The steps of several GPUs that PyTorch runs; the strongest come first."""
from collections import namedtuple

import record

# bucket_mb: 0 where the strategy has none. beside: the bench that does the same. seconds: about what the case takes on two H100s; of tp
# and pp, by when it ends.
Case = namedtuple("Case", "strategy precision mode bucket_mb size seq batch beside seconds full_load", defaults=(False,))


def full_load(strategy, precision, bucket_mb, batch, beside, mode="compile-blocks", seconds=35):
    """4096 or 8192 tokens on each GPU: its kernels are longer than their launches. Blocks are alike and compiled once."""
    return Case(strategy, precision, mode, bucket_mb, "2.7b", 2048, batch, beside, seconds, True)


def xl(strategy, precision, mode, bucket_mb, beside, seconds=25):
    """1024 tokens on each GPU, the course's case: most of these wait for their host, and the report says so."""
    return Case(strategy, precision, mode, bucket_mb, "xl", 512, 2, beside, seconds)


GRAPHS = ("block-graph", "fused-graph")  # the whole step with its all-reduces is one CUDA graph
# Products are fused (q, k, v; gate, up), and the loss is compiled, too. FSDP2 with a unit for each block, with the next two units gathered
# ahead, and so with two blocks a unit.
FUSED = ("fused-graph", "fused-blocks", "fused-prefetch", "fused-pairs")
CASES = [
    full_load("fsdp2", "bf16", 0, 4, "fsdp", "fused-prefetch", 40), full_load("ddp25", "bf16pure", 25, 4, "ddp_bucketed", "fused-graph", 45),
    full_load("fsdp2", "bf16", 0, 4, "fsdp"), full_load("fsdp2", "bf16", 0, 2, "fsdp", "fused-prefetch"),
    full_load("fsdp2-keep", "bf16", 0, 4, "fsdp", "fused-blocks"), full_load("fsdp2", "bf16", 0, 4, "fsdp", "fused-pairs", 40),
    full_load("fsdp2", "bf16", 0, 4, "fsdp", "fused-blocks"), full_load("fsdp2", "bf16", 0, 2, "fsdp"),
    *(full_load("fsdp2-keep", "bf16", 0, batch, "fsdp") for batch in (4, 2)),
    full_load("ddp25", "bf16pure", 25, 4, "ddp_bucketed"), full_load("ddp25", "bf16pure", 25, 2, "ddp_bucketed"),
    xl("ddp25", "bf16pure", "fused-graph", 25, "ddp_bucketed", 40),
    *(xl("ddp25", precision, "block-graph", 25, "ddp_bucketed", 30) for precision in ("bf16", "bf16pure")),
    xl("zero1", "bf16", "compile-blocks", 25, "zero1"), xl("fsdp2", "bf16", "compile-blocks", 0, "fsdp"),
    xl("ddp25", "bf16", "compile-blocks", 25, "ddp_bucketed"), xl("ddp25", "bf16pure", "compile-blocks", 25, "ddp_bucketed"),
    *(xl(strategy, "bf16", "eager", bucket_mb, beside) for strategy, bucket_mb, beside in (
        ("zero1", 25, "zero1"), ("ddp25", 25, "ddp_bucketed"), ("fsdp2", 0, "fsdp"), ("naive", 0, "ddp_naive"), ("flat", 0, "ddp_flat"),
        ("overlap", 0, "ddp_overlap"))),
    *(xl("ddp", "bf16", "eager", mb, "ddp_bucketed") for mb in (1000, 100, 10, 1)), xl("ddp25", "fp32", "eager", 25, "ddp_bucketed"),
]
SMALL = [Case(*case, "small", 128, 2, "", 0) for case in (
    ("ddp", "bf16", "eager", 1), ("ddp25", "bf16", "compile-blocks", 25), ("ddp25", "bf16", "compile", 25), ("naive", "bf16", "eager", 0),
    ("flat", "bf16", "eager", 0), ("overlap", "bf16", "eager", 0), ("zero1", "bf16", "eager", 25), ("fsdp2", "bf16", "eager", 0),
    ("ddp25", "bf16pure", "fused-graph", 25), ("ddp25", "bf16", "block-graph", 25), ("fsdp2", "bf16", "fused-prefetch", 0),
    ("fsdp2", "bf16", "fused-pairs", 0), ("fsdp2", "bf16", "compile-blocks", 0), ("fsdp2-keep", "bf16", "compile-blocks", 0))]

POLICIES = {
    "fp32": "all fp32",
    "bf16": "autocast: fp32 weights, gradients, residual stream and AdamW states; products in bf16; gradients sent as fp32",
    "bf16pure": "everything bf16: weights, gradients, activations, AdamW states; gradients sent as bf16",
    "fsdp2": "FSDP2: fp32 shards and AdamW states, weights gathered and products in bf16, gradients reduced in fp32",
    "fsdp2-keep": "FSDP2 with reshard_after_forward=False: fp32 shards and AdamW states, weights gathered once a step and products in bf16, "
                  "gradients reduced in fp32",
}


def columns(case, ranks):
    """Of peer_ddp.csv."""
    return {"bench": "ddp", "strategy": case.strategy, "ranks": ranks, "size": case.size, "seq": case.seq, "batch_per_rank": case.batch,
            "precision": case.precision, "attn": "sdpa", "mode": case.mode, "timing": "queued",
            "policy": POLICIES.get(case.strategy, POLICIES[case.precision]), "bucket_mb": case.bucket_mb, "planned": len(CASES)}


# Layers shared by ranks: what bench_tp's default list has.
Tp = namedtuple("Tp", "mode size seq batch seconds")
TP_GRAPHS = ("block-graph", "async-graph")  # compiled blocks, and the whole step is one CUDA graph
TP = [Tp(mode, "2.7b", 2048, 4, 50 if mode == "eager" else 160 if mode in TP_GRAPHS else 100) for mode in (*TP_GRAPHS, "compile-blocks", "compile-blocks-async", "eager")]
TP_SMALL = [Tp("eager", "tiny", 64, 2, 100), Tp("compile-blocks", "tiny", 64, 2, 100)]
TP_POLICY = "DTensor: tensor and sequence parallel, loss_parallel; everything bf16: weights, gradients, activations, AdamW states"


def tp_columns(case, ranks):
    return {"bench": "tp", "ranks": ranks, "size": case.size, "seq": case.seq, "batch": case.batch, "precision": "bf16pure", "attn": "sdpa",
            "mode": case.mode, "timing": "queued", "policy": TP_POLICY}


# Each schedule of a pipeline as it is, and with its blocks or the whole stage compiled: the library runs what it is given. Graphs of a
# stage with compiled blocks leave the host little to do; a backward in two halves cannot be one.
Pp = namedtuple("Pp", "impl mode size seq micro_batches seconds")
SCHEDULES = ("1f1b", "gpipe", "zb-v")
PP = [Pp(impl, mode, "2.7b", 1024, 8, seconds)
      for mode, seconds, impls in (("graph", 50, SCHEDULES[:2]), ("compile-blocks", 60, ("zb-v", "1f1b", "gpipe")), ("compile", 150, SCHEDULES),
                                   ("eager", 45, SCHEDULES)) for impl in impls]
PP_SMALL = [Pp(impl, "eager", "small", 128, 4, 100) for impl in SCHEDULES]
PP_POLICY = "as many blocks in each stage; PipelineStage over NCCL; AdamW fused, no clipping"


def pp_columns(case, ranks):
    return {"bench": "pp", "impl": case.impl, "ranks": ranks, "size": case.size, "seq": case.seq, "batch": 1,
            "micro_batches": case.micro_batches, "precision": "bf16-pure", "attn": "sdpa", "mode": case.mode, "policy": PP_POLICY}


# By peer: the list, the short one of --small, and the columns of a case.
LISTS = {"ddp": (CASES, SMALL, columns), "tp": (TP, TP_SMALL, tp_columns), "pp": (PP, PP_SMALL, pp_columns)}


def numbered(cases, numbers):
    """Those of a list that the text names, such as 0,3; all of them if it is empty."""
    return [cases[int(number)] for number in numbers.split(",")] if numbers else cases


def cases_of(peer, arguments):
    """What a rank that was started with these arguments is to run."""
    return numbered(LISTS[peer]["--small" in arguments], arguments[arguments.index("--case") + 1] if "--case" in arguments else "")


def chosen(beside, full_loads, words=""):
    """Numbers of the cases beside these benches (all, if none is named), with these words."""
    named = record.chosen(CASES, words)
    return [i for i, case in enumerate(CASES) if (not beside or case.beside in beside) and (case.full_load or not full_loads) and case in named]
