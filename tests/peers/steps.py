# SPDX-License-Identifier: MIT
"""Training steps of PyTorch on one GPU: the peers of bench_transformer, by policy of precision and by mode. They start from the
parameters and tokens of the bench, so that losses can be compared."""
import contextlib
import gc
import statistics
import sys
import time
from collections import namedtuple

import load
import record

# seconds: about what the case takes on an H100, compilation included; one that takes more than twice as long ends its process.
Case = namedtuple("Case", "size seq precision mode optimizer seconds")

TORCHAO = {"fp8-tensorwise-ao": "tensorwise", "fp8-rowwise-ao": "rowwise", "fp8-rowwise-dw16-ao": "rowwise_with_gw_hp"}  # recipes
POLICIES = {
    "fp32": "fp32 weights, gradients, activations and AdamW states, fp32 products",
    "tf32": "fp32 in memory, tf32 products",
    "bf16": "autocast: fp32 weights, gradients, residual stream and AdamW states; products in bf16",
    "bf16rest": "bf16 weights, gradients and activations; AdamW with fp32 states on weights and 16-bit remainders: fp32 values",
    "fp8-tensorwise": "as bf16rest; products of the blocks by torch._scaled_mm: e4m3, dy in e5m2, a scale for each matrix, fast sums in y alone",
    "fp8-rowwise": "as bf16rest; products of the blocks by torch._scaled_mm: e4m3, a scale for each row along k, fast sums in y alone",
    **{name: f"as bf16rest; the blocks' linear layers by torchao, recipe {recipe}" for name, recipe in TORCHAO.items()},
}
FLOAT8 = ("fp8-tensorwise", "fp8-rowwise")
EARLY = 3  # steps whose losses are compared with ours


def fused(size, seq, seconds, precision="bf16rest", optimizer="compiled"):
    """q, k and v are one product, gate and up one; blocks and loss are compiled, and the whole step is one CUDA graph."""
    return Case(size, seq, precision, "fused-graph", optimizer, seconds)


# The list is fixed, and all of it runs within LIST_S: what did not run has a row that says why. Of each size and context the strongest,
# and what matters most first. Blocks are alike and compiled once; those of a case that another one compiled come from PyTorch's cache. The
# first case of a process takes some 20 s more.
LIST_S = 330  # with the start of the process
CASES = [
    fused("xl", 1024, 36), fused("2.7b", 2048, 19), fused("xl", 512, 12), fused("small", 512, 20), fused("2.7b", 1024, 13), fused("2.7b", 512, 12),
    fused("small", 1024, 11), fused("small", 128, 11), fused("xl", 1024, 12, optimizer="beside"),
    fused("xl", 1024, 27, "fp8-tensorwise-ao"), *(fused("xl", 1024, 17, p) for p in ("fp8-rowwise", "fp8-rowwise-ao")),
    fused("2.7b", 2048, 25, "fp8-tensorwise-ao"), fused("2.7b", 2048, 20, "fp8-rowwise"), fused("xl", 512, 12, "tf32", "fused"),
    fused("xl", 512, 20, "fp32", "fused"), Case("xl", 512, "bf16", "eager", "fused", 9), fused("xl", 1024, 17, "fp8-rowwise-dw16-ao"),
]
SMALL = [fused("small", 128, 0), fused("small", 128, 0, optimizer="beside"), Case("small", 128, "bf16", "eager", "fused", 0),
         *(fused("small", 128, 0, precision, "fused") for precision in ("tf32", "fp32")),
         *(fused("small", 128, 0, precision) for precision in (*FLOAT8, *TORCHAO))]
BATCH = 4


def columns(case):
    """Of peer_model.csv."""
    return {"bench": "model", "size": case.size, "seq": case.seq, "batch": BATCH, "precision": case.precision, "attn": "sdpa",
            "mode": case.mode, "optimizer": case.optimizer, "policy": POLICIES[case.precision], "planned": len(CASES)}


class Step:
    def __init__(self, case, batch, device="cuda"):
        import torch

        import adamw
        import float8
        import model as models
        import start
        self.torch, self.models, self.losses = torch, models, []
        whole = case.mode == "fused-graph"
        self.model = models.create(case.size, case.seq, whole, device)
        if case.precision not in ("fp32", "tf32", "bf16"):
            self.model = self.model.bfloat16()
        if case.precision in (*FLOAT8, *TORCHAO):
            float8.convert(self.model, case.precision, TORCHAO.get(case.precision))
        if case.optimizer == "fused":
            self.optimizer = adamw.Fused(self.model.parameters(), whole)
        else:
            self.optimizer = adamw.Compiled(self.model.parameters(), True, case.optimizer == "beside", device)
        self.autocast, self.device = case.precision == "bf16", device
        self.inputs, self.targets = start.batch(batch, case.seq, load.VOCAB, device)
        self.tail = whole
        if whole:
            models.compile_blocks(self.model, True)

    def forward(self):
        with self.torch.autocast(self.device, self.torch.bfloat16, enabled=self.autocast):
            self.loss = self.models.loss_of(self.model, self.inputs, self.targets, self.tail)

    def backward(self):
        self.optimizer.begin()
        self.loss.backward()

    def update(self):
        self.optimizer.step()
        for parameter in self.model.parameters():
            parameter.grad = None

    def whole(self):
        self.forward()
        self.backward()
        self.update()
        if len(self.losses) < EARLY:
            self.losses.append(float(self.loss.detach()))


def time_parts(step, warmup, iters):
    """Medians of the step and its parts; the host waits after every step, as a training loop that reads its loss."""
    samples = []
    for turn in range(warmup + iters):
        if turn < EARLY:
            step.whole()
            continue
        marks = [step.torch.cuda.Event(enable_timing=True) for _ in range(4)]
        marks[0].record()
        for part, mark in zip((step.forward, step.backward, step.update), marks[1:]):
            part()
            mark.record()
        step.torch.cuda.synchronize()
        if turn >= warmup:
            parts = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
            samples.append([marks[0].elapsed_time(marks[-1]), *parts])
    whole, *parts = zip(*samples)
    return {**load.spread(whole), **dict(zip(("fwd_ms", "bwd_ms", "opt_ms"), map(statistics.median, parts)))}


def time_graph(step, warmup, iters):
    """Forward, backward and update of what was compiled in one CUDA graph, each launched while the one before runs: nothing of the host
    is left. The replay, too."""
    import clock
    cuda = step.torch.cuda
    stream = cuda.Stream()
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        for _ in range(EARLY):
            step.whole()
    cuda.synchronize()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph, stream=stream):
        step.forward()
        step.backward()
        step.optimizer.step()
    clock.queued_ms(graph.replay, warmup)
    return load.spread(clock.queued_ms(graph.replay, iters)), graph.replay


def busy_of(step, step_ms, gpu):
    """A step that is one graph has no host between its first and its last kernel, so it is not asked."""
    wait = step.torch.cuda.synchronize
    return load.gpu_busy(lambda: (step.whole(), wait()), wait, step_ms, gpu["gpu_uuid"])


def measure(gpu, case, batch, warmup=5, iters=20):
    import torch
    if case.precision in TORCHAO:
        import torchao.float8  # noqa: F401  where it is not, no model takes memory
    cuda = torch.cuda
    cuda.reset_peak_memory_stats()
    base = cuda.memory_allocated()  # what an earlier case has left is not this one's
    torch.backends.cuda.matmul.allow_tf32 = case.precision == "tf32"
    step = Step(case, batch)
    with contextlib.closing(step.optimizer):
        gc.collect()
        gc.disable()
        if case.mode == "fused-graph":
            times, again = time_graph(step, warmup, iters)
            busy = {}
        else:
            times, again = time_parts(step, warmup, iters), step.whole
            busy = busy_of(step, times["step_ms"], gpu)
        loss = float(step.loss.detach())
        if loss != loss:
            raise ArithmeticError("the loss is not a number")
        params = sum(p.numel() for p in step.model.parameters())
        return {**times, "tokens_per_s": batch * case.seq / times["step_ms"] * 1e3,
                "peak_gib": (cuda.max_memory_allocated() - base) / 2**30, "params": params, "loss_first": step.losses[0],
                "loss_third": step.losses[EARLY - 1], "loss": loss,
                "mfu_pct": load.mfu_pct(gpu["gpu"], case.precision, case.size, case.seq, batch, times["step_ms"]),
                "sm_mhz": load.asked_amid(again, cuda.synchronize, times["step_ms"], gpu["gpu_uuid"], "clocks.sm", 1),
                "attn_kernel": load.attention_kernel(again, cuda.synchronize), **busy}


def model(rows, cases):
    import torch
    for place, case in enumerate(cases):
        started = time.monotonic()
        load.limited(case.seconds)
        try:
            cells = measure(rows.facts, case, BATCH, iters=10 if case.precision == "fp32" else 20)
        except Exception as error:  # no memory for one case is no end
            if place > 0 and isinstance(error, torch.OutOfMemoryError):
                sys.exit(1)  # it is tried alone, in another process
            cells = {"note": record.reason_of(error)}
        load.limited(None)
        gc.enable()
        rows.add(**columns(case), took_s=time.monotonic() - started, **cells)
        torch.cuda.synchronize()  # a GPU that is lost ends the process, and the cases to come have another one
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
