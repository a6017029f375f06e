# SPDX-License-Identifier: MIT
"""Training steps of PyTorch on one GPU: the peers of bench_transformer, by policy of precision and by mode. They start from the
parameters and tokens of the bench, so that losses can be compared."""
import contextlib
import functools
import gc
import statistics
import sys
import time
from collections import namedtuple

import load
import record

# attn: sdpa, PyTorch's choice; cudnn, fa2, fa4; naive. seconds: about what the case takes, compilation included;
# one that takes more than twice as long ends its process.
Case = namedtuple("Case", "size seq precision attn mode optimizer seconds")

TORCHAO = {"fp8-tensorwise-ao": "tensorwise", "fp8-rowwise-ao": "rowwise", "fp8-rowwise-dw16-ao": "rowwise_with_gw_hp"}  # recipes
POLICIES = {
    "fp32": "fp32 weights, gradients, activations and AdamW states, fp32 products",
    "tf32": "fp32 in memory, tf32 products",
    "bf16": "autocast: fp32 weights, gradients, residual stream and AdamW states; products in bf16",
    "bf16pure": "everything bf16: weights, gradients, activations, AdamW states",
    "bf16master": "bf16 weights, gradients and activations; AdamW on fp32 copies of the weights with fp32 states",
    "bf16rest": "bf16 weights, gradients and activations; AdamW with fp32 states on weights and 16-bit remainders: fp32 values",
    "fp8-tensorwise": "as bf16rest; products of the blocks by torch._scaled_mm: e4m3, dy in e5m2, a scale for each matrix, fast sums in y alone",
    "fp8-rowwise": "as bf16rest; products of the blocks by torch._scaled_mm: e4m3, a scale for each row along k, fast sums in y alone",
    **{name: f"as bf16rest; the blocks' linear layers by torchao, recipe {recipe}" for name, recipe in TORCHAO.items()},
}
FLOAT8 = ("fp8-tensorwise", "fp8-rowwise")
GRAPHS = ("step-graph", "block-graph", "fused-graph", "tuned-graph")  # the whole step is one CUDA graph
FUSED = ("fused-graph", "tuned-graph")  # q, k, v are one product, gate and up one, and the loss is compiled, too
EARLY = 3  # steps whose losses are compared with ours


def fused(size, seq, seconds, optimizer="compiled", precision="bf16rest", attn="sdpa", mode="fused-graph"):
    """With an update that is one kernel for each tensor; `tuned-graph` races products, too (max_autotune_gemm)."""
    return Case(size, seq, precision, attn, mode, optimizer, seconds)


def grid(sizes, contexts, precisions, seconds, mode="block-graph", attn="sdpa", optimizer="fused"):
    return [Case(size, seq, p, attn, mode, optimizer, seconds) for size in sizes for seq in contexts for p in precisions]


# The list is fixed: what did not run has a row that says why. What matters most comes first, since a time limit cuts the end off: of
# each size and context the strongest. Blocks are alike and compiled once; those of a case that another one compiled come from PyTorch's
# cache. Seconds are those of an H100; the first case of a process takes some 20 more.
CASES = [
    fused("xl", 1024, 25), fused("2.7b", 2048, 30), fused("xl", 1024, 15, "beside"), fused("2.7b", 2048, 20, "beside"),
    fused("xl", 512, 15), fused("xl", 512, 15, "beside"), fused("small", 1024, 15), fused("small", 512, 12),
    *grid(("xl",), (1024, 512), ("bf16master",), 20), *grid(("2.7b",), (1024, 512), ("bf16master",), 20),
    fused("2.7b", 1024, 20), fused("2.7b", 512, 15), *grid(("xl",), (1024,), (*TORCHAO, *FLOAT8), 35, optimizer="compiled"),
    fused("xl", 1024, 15, "fused", "bf16pure"), *grid(("xl",), (1024, 512), ("bf16pure",), 12),
    fused("xl", 1024, 90, mode="tuned-graph"), fused("2.7b", 2048, 90, mode="tuned-graph"),
    *grid(("small",), (512, 1024, 128), ("bf16master",), 9), *grid(("xl", "small"), (512,), ("tf32", "fp32"), 20),
    *grid(("2.7b",), (2048,), (*TORCHAO, *FLOAT8), 35, optimizer="compiled"), *grid(("xl", "2.7b"), (128,), ("bf16master",), 14),
    *grid(("small",), (1024, 512), ("bf16pure",), 8), fused("xl", 1024, 40, attn="fa4"), fused("2.7b", 2048, 40, attn="fa4"),
    fused("xl", 512, 15, "fused", "tf32"), *grid(("xl", "small"), (512,), ("bf16", "fp32"), 15, "eager"),
    *grid(("xl", "small", "2.7b", "medium", "large"), (512,), ("bf16",), 12),
    *grid(("medium", "large"), (512, 1024, 128), ("bf16master",), 11), *grid(("small",), (1024,), FLOAT8, 12, optimizer="compiled"),
    *grid(("2.7b",), (2048,), ("bf16master",), 20), *grid(("small",), (512,), ("bf16",), 10, "eager", "naive"),
    *grid(("small",), (512,), ("bf16",), 12, "block-graph", "naive"), *grid(("small",), (512,), ("bf16master",), 60, "step-graph"),
    *grid(("small",), (512,), ("bf16",), 60, "compile"), *grid(("small",), (512,), ("bf16",), 60, "compile-graph"),
]
SMALL = [fused("small", 128, 0), fused("small", 128, 0, "beside", attn="cudnn", mode="tuned-graph"), fused("small", 128, 0, attn="fa4"),
         *grid(("small",), (128,), ("bf16", "bf16master"), 0, "eager"), *grid(("small",), (128,), ("bf16master",), 0, "step-graph"),
         *grid(("small",), (128,), ("bf16master",), 0), *grid(("small",), (128,), (*FLOAT8, *TORCHAO), 0, optimizer="compiled"),
         *grid(("small",), (128,), ("fp32",), 0, "eager", "naive")]
BATCH = 4


def columns(case):
    """Of peer_model.csv."""
    return {"bench": "model", "size": case.size, "seq": case.seq, "batch": BATCH, "precision": case.precision, "attn": case.attn,
            "mode": case.mode, "optimizer": case.optimizer, "policy": POLICIES[case.precision], "planned": len(CASES)}


@contextlib.contextmanager
def attention(attn):
    """One backend of scaled_dot_product_attention and no other; an error where it is missing or takes no such shape."""
    import torch.nn.attention as kinds
    names = {"cudnn": "CUDNN_ATTENTION", "fa2": "FLASH_ATTENTION", "fa4": "FLASH_ATTENTION"}
    if attn not in names:
        yield
        return
    if attn == "fa4":
        kinds.activate_flash_attention_impl("FA4")
    try:
        with kinds.sdpa_kernel(kinds.SDPBackend[names[attn]]):
            yield
    finally:
        if attn == "fa4":
            kinds.restore_flash_attention_impl()


class Step:
    def __init__(self, case, batch, device="cuda"):
        import torch

        import adamw
        import float8
        import model as models
        import start
        self.torch, self.losses = torch, []
        whole = case.mode in FUSED
        self.model = models.create(case.size, case.seq, "naive" if case.attn == "naive" else "sdpa", whole, device)
        if case.precision not in ("fp32", "tf32", "bf16"):
            self.model = self.model.bfloat16()
        if case.precision in (*FLOAT8, *TORCHAO):
            float8.convert(self.model, case.precision, TORCHAO.get(case.precision))
        if case.optimizer == "fused":
            self.optimizer = adamw.Fused(self.model.parameters(), case.precision == "bf16master", case.mode in GRAPHS)
        else:
            halves = case.precision in ("bf16rest", *FLOAT8, *TORCHAO)
            self.optimizer = adamw.Compiled(self.model.parameters(), halves, case.optimizer == "beside", device)
        self.autocast, self.device = case.precision == "bf16", device
        self.inputs, self.targets = start.batch(batch, case.seq, load.VOCAB, device)
        self.function, self.loss_of = self.model, functools.partial(models.loss_of, tail=whole)
        if case.mode in ("block-graph", *FUSED):
            models.compile_blocks(self.model, whole, case.mode == "tuned-graph")
        elif case.mode != "eager":
            kind = "reduce-overhead" if case.mode == "compile-graph" else "default"
            self.function = torch.compile(self.model, mode=kind, dynamic=False)

    def forward(self):
        with self.torch.autocast(self.device, self.torch.bfloat16, enabled=self.autocast):
            self.loss = self.loss_of(self.function, self.inputs, self.targets)

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
        if case.mode in GRAPHS:
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
            with attention(case.attn):
                cells = measure(rows.facts, case, BATCH)
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
