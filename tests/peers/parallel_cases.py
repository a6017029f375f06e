# SPDX-License-Identifier: MIT
"""The steps of several GPUs that PyTorch runs; the strongest come first."""
import contextlib
import importlib.metadata
from collections import namedtuple

import record

# bucket_mb: 0 where the strategy has none. beside: the bench that does the same. seconds: about what the case takes on two H100s; of tp,
# pp and torchtitan, by when it ends.
Case = namedtuple("Case", "strategy precision mode bucket_mb size seq batch beside seconds full_load", defaults=(False,))


def full_load(strategy, precision, bucket_mb, batch, beside, mode, seconds):
    """4096 or 8192 tokens on each GPU: its kernels are longer than their launches. Blocks are alike and compiled once."""
    return Case(strategy, precision, mode, bucket_mb, "2.7b", 2048, batch, beside, seconds, True)


def large(precision, seconds):
    """8.13 billion parameters, of which fp32 shards and AdamW states leave no room on two H100s: what ours does there, too."""
    return Case("fsdp2-rest", precision, "fused-prefetch", 0, "8b", 8192, 1, "fsdp", seconds, True)


def xl(strategy, precision, mode, bucket_mb, beside, seconds):
    """1024 tokens on each GPU, the course's case: what is no graph waits for its host, and the report says so."""
    return Case(strategy, precision, mode, bucket_mb, "xl", 512, 2, beside, seconds)


# Products are fused (q, k, v; gate, up), and the loss is compiled, too. Of DDP the whole step with its all-reduces is one CUDA graph, of
# FSDP2 a unit is gathered as it comes (fused-blocks), or with the next two ahead on request.
FUSED = ("fused-graph", "fused-blocks", "fused-prefetch")
TORCHAO = {"fp8-tensorwise-ao": "tensorwise"}  # recipes
LIST_S = {"ddp": 430, "tp": 170, "pp": 110, "torchtitan": 400}  # in which a list runs, with the start of its processes
CASES = [
    full_load("fsdp2", "bf16", 0, 4, "fsdp", "fused-prefetch", 42), full_load("ddp25", "bf16pure", 25, 4, "ddp_bucketed", "fused-graph", 42),
    full_load("fsdp2", "bf16", 0, 4, "fsdp", "compile-blocks", 30), full_load("fsdp2", "bf16", 0, 2, "fsdp", "fused-prefetch", 25),
    full_load("fsdp2-keep", "bf16", 0, 4, "fsdp", "fused-blocks", 28), full_load("fsdp2", "bf16", 0, 2, "fsdp", "compile-blocks", 24),
    full_load("fsdp2", "fp8-tensorwise-ao", 0, 2, "fsdp", "fused-prefetch", 38),
    large("bf16", 65), large("fp8-tensorwise-ao", 65),
    xl("ddp25", "bf16pure", "fused-graph", 25, "ddp_bucketed", 28), xl("zero1", "bf16", "compile-blocks", 25, "zero1", 23),
]
SMALL = [Case(*case, "small", 128, 2, "", 0) for case in (
    ("ddp25", "bf16pure", "fused-graph", 25), ("ddp25", "bf16", "compile-blocks", 25), ("zero1", "bf16", "compile-blocks", 25),
    ("fsdp2", "bf16", "fused-prefetch", 0), ("fsdp2", "fp8-tensorwise-ao", "fused-prefetch", 0), ("fsdp2", "bf16", "compile-blocks", 0),
    ("fsdp2-keep", "bf16", "fused-blocks", 0), *(("fsdp2-rest", precision, "fused-prefetch", 0) for precision in ("bf16", "fp8-tensorwise-ao")))]

POLICIES = {
    "bf16": "autocast: fp32 weights, gradients, residual stream and AdamW states; products in bf16; gradients sent as fp32",
    "bf16pure": "everything bf16: weights, gradients, activations, AdamW states; gradients sent as bf16",
    "fsdp2": "FSDP2: fp32 shards and AdamW states, weights gathered and products in bf16, gradients reduced in fp32",
    "fsdp2-keep": "FSDP2 with reshard_after_forward=False: fp32 shards and AdamW states, weights gathered once a step and products in bf16, "
                  "gradients reduced in fp32",
    "fsdp2-rest": "FSDP2: bf16 shards, gathered for each use and reduced in bf16; AdamW with fp32 states on shards and 16-bit remainders: fp32 "
                  "values; the MLPs are recomputed",
    "fp8-tensorwise-ao": "FSDP2: fp32 shards and AdamW states, weights gathered in bf16; the blocks' linear layers by torchao, recipe tensorwise; "
                         "gradients reduced in fp32",
}


def policy_of(case):
    if case.strategy == "fsdp2-rest":
        return POLICIES[case.strategy] + (f"; the blocks' linear layers by torchao, recipe {TORCHAO[case.precision]}" if case.precision in TORCHAO else "")
    return POLICIES[case.precision if case.precision in TORCHAO or case.strategy not in POLICIES else case.strategy]


def columns(case, ranks):
    """Of peer_ddp.csv."""
    return {"bench": "ddp", "strategy": case.strategy, "ranks": ranks, "size": case.size, "seq": case.seq, "batch_per_rank": case.batch,
            "precision": case.precision, "attn": "sdpa", "mode": case.mode, "timing": "queued",
            "policy": policy_of(case), "bucket_mb": case.bucket_mb, "planned": len(CASES)}


# Layers shared by ranks: what bench_tp's default list has. Blocks are compiled, and the whole step is one CUDA graph; `async`: products
# in parts, between which rows are sent.
Tp = namedtuple("Tp", "mode size seq batch seconds")
TP_LAUNCHED = {"block-graph": "compile-blocks", "async-graph": "compile-blocks-async"}  # the mode of what can't be captured
TP = [Tp(mode, "2.7b", 2048, 4, seconds) for mode, seconds in (("block-graph", 95), ("async-graph", 75))]
TP_SMALL = [Tp("block-graph", "tiny", 64, 2, 100)]
TP_POLICY = "DTensor: tensor and sequence parallel, loss_parallel; everything bf16: weights, gradients, activations, AdamW states"


def tp_columns(case, ranks):
    return {"bench": "tp", "ranks": ranks, "size": case.size, "seq": case.seq, "batch": case.batch, "precision": "bf16pure", "attn": "sdpa",
            "mode": case.mode, "timing": "queued", "policy": TP_POLICY}


# Schedules of a pipeline: the library runs what it is given. Graphs of a stage with compiled blocks leave the host little to do; a backward
# in two halves cannot be one, nor be compiled in one, so there the whole step is a graph of compiled pieces between products.
Pp = namedtuple("Pp", "impl mode size seq micro_batches seconds")
PP = [Pp(impl, mode, "2.7b", 1024, 8, seconds) for impl, mode, seconds in (("1f1b", "graph", 60), ("zb-v", "pieces-graph", 50))]
PP_SMALL = [Pp(impl, mode, "small", 128, 4, 100) for impl, mode in (("1f1b", "graph"), ("zb-v", "pieces-graph"))]
PP_LAUNCHED = {"pieces-graph": "compile-pieces"}  # the mode of what can't be captured
PP_POLICY = "as many blocks in each stage; PipelineStage over NCCL; AdamW fused, no clipping"


def pp_columns(case, ranks):
    return {"bench": "pp", "impl": case.impl, "ranks": ranks, "size": case.size, "seq": case.seq, "batch": 1,
            "micro_batches": case.micro_batches, "precision": "bf16-pure", "attn": "sdpa", "mode": case.mode, "policy": PP_POLICY}


# torchtitan, whole: first with sums in bf16, as ours has them beside it, then as its published table has them.
Titan = namedtuple("Titan", "size precision reduce seq batch seconds")
TITAN_STEPS = 16
TITAN = [Titan("llama3-8b", precision, reduce, 8192, 1, 100) for reduce in ("bf16", "fp32") for precision in ("bf16", "fp8-tensorwise-ao")]
TITAN_SMALL = [Titan("debugmodel", precision, reduce, 512, 1, 100) for precision, reduce in (("bf16", "bf16"), ("fp8-tensorwise-ao", "fp32"))]
TITAN_FLOAT8 = "; the blocks' linear layers by torchao, recipe tensorwise, whose weights are gathered in float8"


def version_of(package):
    """With a blank before it; nothing where it is not installed."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return " " + importlib.metadata.version(package)
    return ""


def titan_columns(case, ranks):
    """Of peer_torchtitan.csv."""
    return {"bench": "torchtitan", "ranks": ranks, "size": case.size, "seq": case.seq, "batch_per_rank": case.batch, "precision": case.precision,
            "reduce": case.reduce, "checkpointing": "selective-op", "mode": "compile-blocks",
            "policy": f"torchtitan{version_of('torchtitan')}, FSDP2: fp32 shards and AdamW states, weights gathered and products in bf16, "
                      f"gradients reduced in {case.reduce}; AdamW fused, norms clipped{TITAN_FLOAT8 if case.precision in TORCHAO else ''}"}


# By peer: the list, the short one of --small, and the columns of a case.
LISTS = {"ddp": (CASES, SMALL, columns), "tp": (TP, TP_SMALL, tp_columns), "pp": (PP, PP_SMALL, pp_columns),
         "torchtitan": (TITAN, TITAN_SMALL, titan_columns)}


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
