# SPDX-License-Identifier: MIT
"""Training steps of PyTorch on one GPU: the peers of bench_transformer, by policy of precision and by mode."""
import gc
import statistics

import torch

import clock
import float8
import load
import model as models
from record import reason_of

POLICIES = {
    "fp32": "fp32 weights, gradients, activations and AdamW states, fp32 products",
    "tf32": "fp32 in memory, tf32 products",
    "bf16": "autocast: fp32 weights, gradients, residual stream and AdamW states; products in bf16",
    "bf16pure": "everything bf16: weights, gradients, activations, AdamW states",
    "bf16master": "bf16 weights, gradients and activations; AdamW on fp32 copies of the weights with fp32 states",
    **float8.POLICIES,
}
GRAPHS = ("step-graph", "block-graph")  # the whole step is one CUDA graph
# sizes, contexts, precisions, attentions, modes. What matters most comes first, since a time limit cuts the end off: the fastest
# mode of each policy, then autocast, then the slower modes. Compiling a whole model takes seconds per layer; blocks are alike and
# compiled once.
CASES = [
    (("small", "xl"), (512, 128, 1024), ("bf16master",), ("sdpa",), ("block-graph",)),
    (("2.7b",), (1024, 2048, 512), ("bf16master",), ("sdpa",), ("block-graph",)),
    (("xl", "small"), (1024,), tuple(float8.POLICIES), ("sdpa",), ("block-graph",)),
    (("2.7b",), (2048,), tuple(float8.POLICIES), ("sdpa",), ("block-graph",)),
    (("xl", "small"), (1024, 512), ("bf16pure",), ("sdpa",), ("block-graph",)),
    (("xl", "small"), (512,), ("fp32", "tf32"), ("sdpa",), ("block-graph",)),
    (("small",), (512, 128), ("bf16master",), ("sdpa",), ("step-graph",)),
    (("medium", "large"), (512, 128, 1024), ("bf16master",), ("sdpa",), ("block-graph",)),
    (("2.7b",), (128,), ("bf16master",), ("sdpa",), ("block-graph",)),
    (("small", "medium", "large", "xl", "2.7b"), (512, 128, 1024), ("bf16",), ("sdpa",), ("block-graph",)),
    (("2.7b",), (2048,), ("bf16",), ("sdpa",), ("block-graph",)),
    (("small", "xl"), (512,), ("bf16", "bf16pure", "fp32", "tf32"), ("sdpa",), ("eager",)),
    (("xl",), (512,), ("bf16master",), ("sdpa",), ("step-graph",)),
    (("small", "xl"), (512,), ("bf16",), ("sdpa",), ("step-graph",)),
    (("small", "xl"), (512,), ("bf16master", "bf16"), ("sdpa",), ("compile",)),
    (("small",), (512,), ("bf16",), ("naive",), ("eager", "block-graph")),
    (("small",), (128, 512), ("bf16",), ("sdpa",), ("compile-graph",)),
]
SMALL = [(("small",), (128,), ("bf16", "bf16master"), ("sdpa",), ("eager",)),
         (("small",), (128,), ("bf16master", *float8.POLICIES), ("sdpa",), ("step-graph", "block-graph")), (("small",), (128,), ("fp32",), ("naive",), ("eager",))]


class Optimizer:
    """AdamW, fused. With a master it works on fp32 copies: PyTorch has no such optimizer of its own."""

    def __init__(self, parameters, master, capturable):
        self.parameters, self.copies = list(parameters), None
        if master:
            self.copies = [p.detach().float().requires_grad_() for p in self.parameters]
            for copy in self.copies:
                copy.grad = torch.empty_like(copy)
        self.adamw = torch.optim.AdamW(self.copies or self.parameters, lr=1e-4, fused=True, capturable=capturable)

    @torch.no_grad()
    def step(self):
        if not self.copies:
            self.adamw.step()
            return
        torch._foreach_copy_([copy.grad for copy in self.copies], [p.grad for p in self.parameters])
        self.adamw.step()
        torch._foreach_copy_(self.parameters, self.copies)

    def clear(self):
        for parameter in self.parameters:
            parameter.grad = None


class Step:
    def __init__(self, size, seq, batch, precision, attention, mode):
        self.model = models.create(size, seq, attention)
        narrow = precision in float8.POLICIES
        if narrow or precision in ("bf16pure", "bf16master"):
            self.model = self.model.bfloat16()
        if narrow:
            float8.convert(self.model, precision)
        self.optimizer = Optimizer(self.model.parameters(), narrow or precision == "bf16master", mode in GRAPHS)
        self.autocast = precision == "bf16"
        self.inputs, self.targets = models.batch_of(batch, seq)
        self.function = self.model
        if mode == "block-graph":
            for place, block in enumerate(self.model.blocks):
                self.model.blocks[place] = torch.compile(block, dynamic=False)
        elif mode != "eager":
            kind = "reduce-overhead" if mode == "compile-graph" else "default"
            self.function = torch.compile(self.model, mode=kind, dynamic=False)

    def forward(self):
        with torch.autocast("cuda", torch.bfloat16, enabled=self.autocast):
            self.loss = models.loss_of(self.function, self.inputs, self.targets)

    def backward(self):
        self.loss.backward()

    def update(self):
        self.optimizer.step()
        self.optimizer.clear()

    def whole(self):
        self.forward()
        self.backward()
        self.update()


def time_parts(step, warmup, iters):
    """Medians of the step and its parts; the host waits after every step, as a training loop that reads its loss."""
    samples = []
    for turn in range(warmup + iters):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        marks[0].record()
        for part, mark in zip((step.forward, step.backward, step.update), marks[1:]):
            part()
            mark.record()
        torch.cuda.synchronize()
        if turn >= warmup:
            parts = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
            samples.append([marks[0].elapsed_time(marks[-1]), *parts])
    return dict(zip(("step_ms", "fwd_ms", "bwd_ms", "opt_ms"), (statistics.median(s) for s in zip(*samples))))


def time_graph(step, warmup, iters):
    """Forward, backward and update of what was compiled in one CUDA graph: nothing of the host is left."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step.whole()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step.forward()
        step.backward()
        step.optimizer.step()
    return {"step_ms": clock.median_ms(graph.replay, warmup, iters)}


def busy_of(step, step_ms, gpu):
    """A step that is one graph has no host between its first and its last kernel, so it is not asked."""
    return load.gpu_busy(lambda: (step.whole(), torch.cuda.synchronize()), torch.cuda.synchronize, step_ms, gpu["gpu_uuid"])


def measure(gpu, size, seq, batch, precision, attention, mode, warmup=5, iters=10):
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()  # what an earlier case has left is not this one's
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    step = Step(size, seq, batch, precision, attention, mode)
    gc.collect()
    gc.disable()
    times = (time_graph if mode in GRAPHS else time_parts)(step, warmup, iters)
    loss = float(step.loss.detach())
    if loss != loss:
        raise ArithmeticError("the loss is not a number")
    params = sum(p.numel() for p in step.model.parameters())
    result = {**times, "tokens_per_s": batch * seq / times["step_ms"] * 1e3,
              "peak_gib": (torch.cuda.max_memory_allocated() - base) / 2**30, "params": params, "loss": loss,
              "mfu_pct": load.mfu_pct(gpu["gpu"], precision, size, seq, batch, times["step_ms"])}
    return result if mode in GRAPHS else {**result, **busy_of(step, times["step_ms"], gpu)}


def grid(cases):
    for sizes, contexts, precisions, attentions, modes in cases:
        for size in sizes:
            for seq in contexts:
                yield from ((size, seq, p, a, m) for p in precisions for a in attentions for m in modes)


def model(rows, small, batch=4):
    for size, seq, precision, attention, mode in grid(SMALL if small else CASES):
        try:
            cells = measure(rows.facts, size, seq, batch, precision, attention, mode)
        except Exception as error:  # no memory for one case is no end
            cells = {"note": reason_of(error)}
        gc.enable()
        rows.add(bench="model", size=size, seq=seq, batch=batch, precision=precision, attn=attention, mode=mode,
                 policy=POLICIES[precision], **cells)
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
