# SPDX-License-Identifier: MIT
"""Attention of PyTorch's backends, of FlashAttention-4 and (forward) -3 where they are installed, and ours, in turn in one process.

Each implementation's calls are captured in a CUDA graph; rounds replay the graphs one after the other, each for so long that
it runs at the clock that it can hold alone. A ratio is the peer's time over ours in the same round: above 1, ours is faster."""
import ctypes
import functools
import importlib
import statistics
import time
import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import clock
import library
from record import reason_of

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
BACKENDS = {"sdpa_cudnn": SDPBackend.CUDNN_ATTENTION, "sdpa_fa2": SDPBackend.FLASH_ATTENTION, "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION}
REFERENCE_BYTES = 4 << 30  # of one fp64 score matrix; beyond it differences are to ours

# dtype, batch, heads, heads_kv, seq, head_dim or (that of q and k, that of v), causal. With FlashAttention-4 all take 240 s on an H100.
SHAPES = [
    # those in which FlashAttention-4 is or was nearest
    *(("bf16", 8, 16, 16, 2048, head_dim, 1) for head_dim in (128, 96)), ("bf16", 16, 16, 16, 512, 128, 1),
    *(("bf16", 1, 16, 16, 8192, 192, causal) for causal in (1, 0)), ("bf16", 1, 32, 32, 16384, 64, 1), ("bf16", 1, 8, 8, 131072, 128, 1),
    ("bf16", 4, 16, 16, 4096, 128, 0), *(("bf16", 1, 16, 16, 16384, 64, causal) for causal in (1, 0)),
    # others of the report's tables
    ("bf16", 1, 16, 16, 16384, 128, 1), ("bf16", 4, 25, 25, 1024, 64, 1), ("bf16", 1, 16, 16, 16384, 128, 0), ("bf16", 1, 32, 8, 8192, 128, 1),
    ("bf16", 8, 32, 32, 2048, 64, 1), ("bf16", 1, 16, 16, 32768, 128, 1),
    # what nobody names: narrow and wide heads, no mask, many short sequences
    ("bf16", 8, 16, 16, 2048, 80, 1), ("bf16", 8, 16, 16, 2048, 128, 0), ("bf16", 16, 16, 16, 512, 64, 1),
    *(("bf16", 1, 16, 16, 8192, head_dim, causal) for head_dim in (256, (192, 128)) for causal in (1, 0)),
    *(("fp32", 8, 16, 16, seq, head_dim, 1) for head_dim in (64, 128) for seq in (2048, 1024)),
    *((dtype, 1, 1, 1, 16384, head_dim, 1) for dtype in ("bf16", "fp32") for head_dim in (64, 128)),
]
SMALL = [("bf16", 1, 4, 4, 1024, 64, 1), ("bf16", 1, 4, 2, 1024, 128, 0), ("fp32", 1, 4, 4, 1024, 64, 1)]


def widths(head_dim):
    """Columns of q and k, and of v."""
    return head_dim if isinstance(head_dim, tuple) else (head_dim, head_dim)


class Ours:
    """The op `flash` of libstepbench.so on the same tensors."""
    policy = "libstepbench.so, flash"

    def __init__(self, ours, dtype, tensors, causal):
        q, k, v, grad = tensors
        self.ours, self.op = ours, ours.ops["flash"]
        self.out, self.dq, self.dk, self.dv = (torch.full_like(t, float("nan")) for t in (grad, q, k, v))
        self.lse = torch.empty(q.shape[:3], device="cuda")
        problem = library.problem_of(dtype, tensors, (self.out, self.dq, self.dk, self.dv), self.lse, causal=causal)
        self.problem, self.address = problem, ctypes.byref(problem)
        ours.must(self.op.supported(ours.context, self.address))
        saved, scratch = ours.bytes_of(self.op, problem)
        self.memory = [torch.empty(size + 256, dtype=torch.uint8, device="cuda") for size in (saved, scratch)]
        problem.saved, problem.workspace = (library.aligned(memory) for memory in self.memory)
        problem.workspace_bytes = scratch

    def call(self, op):
        self.ours.must(op(self.ours.context, self.address, torch.cuda.current_stream().cuda_stream))

    def forward(self):
        self.call(self.op.forward)

    def backward(self):
        self.call(self.op.backward)

    def results(self):
        self.forward()
        self.backward()
        torch.cuda.synchronize()
        return self.out, self.dq, self.dk, self.dv


class Peer:
    """A function of q, k, v under autograd; `wrap` is entered around its forward."""

    def __init__(self, function, tensors, policy):
        *inputs, self.grad = tensors
        self.function, self.policy = function, policy
        self.inputs = [t.detach().requires_grad_() for t in inputs]
        self.out = function(*self.inputs)

    def forward(self):
        with torch.no_grad():
            self.function(*self.inputs)

    def backward(self):
        return torch.autograd.grad(self.out, self.inputs, self.grad, retain_graph=True)

    def results(self):
        return (self.out.detach(), *self.backward())


def sdpa(backend, causal, grouped):
    def function(q, k, v):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, **({"enable_gqa": True} if grouped else {}))
    return function


def in_own_layout(tensors):
    """(B, S, H, D): the copies are made before anything is timed."""
    return [t.transpose(1, 2).contiguous() for t in tensors]


class FlashAttention4(Peer):
    def __init__(self, module, tensors, causal):
        def function(q, k, v):
            out = module.flash_attn_func(q, k, v, causal=causal)
            return out[0] if isinstance(out, tuple) else out
        super().__init__(function, in_own_layout(tensors), "flash_attn.cute, layout bshd")

    def results(self):
        return tuple(t.transpose(1, 2) for t in super().results())


class FlashAttention3:
    """The package fa3-fwd: the kernels of FlashAttention-3 without a backward."""
    policy = "fa3_fwd, layout bshd"

    def __init__(self, module, tensors, causal):
        self.function, self.causal, self.inputs = module.flash_attn_func, causal, in_own_layout(tensors[:3])

    def forward(self):
        with torch.no_grad():
            out = self.function(*self.inputs, causal=self.causal)
        return out[0] if isinstance(out, tuple) else out

    def results(self):
        return (self.forward().transpose(1, 2),)


OTHERS = {"fa4": ("FlashAttention-4", "flash_attn.cute.interface", FlashAttention4),
          "fa3": ("FlashAttention-3", "fa3_fwd_interface", FlashAttention3)}


def installed():
    """By name, what makes each of the other packages' attention from tensors; says of the others why not."""
    found = {}
    for name, (title, module, kind) in OTHERS.items():
        try:
            imported = importlib.import_module(module)
            kind(imported, [torch.randn(1, 256, 2, 128, device="cuda", dtype=torch.bfloat16)] * 4, True).results()
            found[name] = functools.partial(kind, imported)
        except BaseException as error:  # compilers of kernels end in many ways
            if isinstance(error, KeyboardInterrupt):
                raise
            print(f"  {title} is not available ({reason_of(error)}): no rows {name}")
    return found


def exact(tensors, causal):
    """fp64 forward and backward, the score matrix and all."""
    q, k, v, grad = (t.double() for t in tensors)
    inputs = [t.requires_grad_() for t in (q, k, v)]
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        hidden = torch.ones(scores.shape[-2:], device="cuda", dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    out = torch.softmax(scores, -1) @ v
    return (out.detach(), *torch.autograd.grad(out, inputs, grad))


def difference(found, wanted):
    """Relative L2, the largest over the batch; not a number stays one."""
    return max(float((a.double() - b.double()).norm() / b.double().norm()) for a, b in zip(found, wanted))


def attempt(what, make):
    try:
        return make()
    except Exception as error:  # a backend that does not take a shape is no end
        torch.cuda.synchronize()
        print(f"  {what} was not run: {reason_of(error)}")
        return None


def implementations(shape, tensors, ours, others):
    dtype, _, heads, heads_kv, _, _, causal = shape
    makers = {}
    if ours:
        makers["stepbench"] = lambda: Ours(ours, dtype, tensors, bool(causal))
    for name, backend in BACKENDS.items():
        if (dtype == "bf16") != (name == "sdpa_efficient"):  # in bf16 it is several times slower than the others
            makers[name] = lambda name=name, backend=backend: Peer(
                sdpa(backend, bool(causal), heads != heads_kv), tensors, f"scaled_dot_product_attention, {backend.name}")
    if dtype == "bf16":
        makers |= {name: functools.partial(make, tensors, bool(causal)) for name, make in others.items()}
    made = {name: attempt(name, make) for name, make in makers.items()}
    return {name: peer for name, peer in made.items() if peer}


def compare(made, shape, tensors):
    """What the results are compared with, and each implementation's largest difference forward and backward."""
    _, batch, heads, _, seq, _, causal = shape
    if batch * heads * seq * seq * 8 <= REFERENCE_BYTES:
        reference, wanted = "fp64", exact(tensors, causal)
    elif "stepbench" in made:
        reference, wanted = "stepbench", made["stepbench"].results()
    else:
        return "", {}
    found = {}
    for name, peer in made.items():
        results = attempt(f"{name}, backward", peer.results)
        if results:
            found[name] = [max((difference([a], [b]) for a, b in pairs), default="")
                           for pairs in (zip(results[:1], wanted[:1]), zip(results[1:], wanted[1:]))]
    return reference, found


def time_pass(made, direction, stream, rounds):
    graphs = {name: attempt(f"{name}, {direction}", lambda peer=peer: clock.capture(getattr(peer, direction), stream))
              for name, peer in made.items() if hasattr(peer, direction)}
    return clock.in_turn({name: graph for name, graph in graphs.items() if graph}, rounds)


def ratios(times, name, short):
    if name == "stepbench" or name not in times or "stepbench" not in times:
        return {}
    each = [theirs / mine for theirs, mine in zip(times[name], times["stepbench"])]
    return {f"{short}_ratio": statistics.median(each), f"{short}_ratio_lo": min(each), f"{short}_ratio_hi": max(each)}


def measure(rows, shape, ours, others, layout, rounds):
    dtype, batch, heads, heads_kv, seq, head_dim, causal = shape
    of_q, of_v = widths(head_dim)

    def tensor(of_heads, columns):
        if layout == "bshd":
            return torch.randn(batch, seq, of_heads, columns, device="cuda", dtype=DTYPES[dtype]).transpose(1, 2)
        return torch.randn(batch, of_heads, seq, columns, device="cuda", dtype=DTYPES[dtype])

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        tensors = [tensor(heads, of_q), tensor(heads_kv, of_q), tensor(heads_kv, of_v), tensor(heads, of_v)]
        made = implementations(shape, tensors, ours, others)
        reference, differences = compare(made, shape, tensors)
    torch.cuda.synchronize()
    times = {direction: time_pass(made, direction, stream, rounds) for direction in ("forward", "backward")}
    flops_of_column = 2.0 * batch * heads * seq * seq * (0.5 if causal else 1)
    columns = {"forward": of_q + of_v, "backward": 3 * of_q + 2 * of_v}  # of all products together
    for name, peer in made.items():
        cells = {}
        for direction, short in (("forward", "fwd"), ("backward", "bwd")):
            if name in times[direction]:
                ms = statistics.median(times[direction][name])
                tflops = columns[direction] * flops_of_column / ms / 1e9
                cells |= {f"{short}_ms": ms, f"{short}_tflops": tflops, **ratios(times[direction], name, short)}
        if name in differences:
            cells |= {"reference": reference, "fwd_diff": differences[name][0], "bwd_diff": differences[name][1]}
        rows.add(bench="flash_interleaved", impl=name, dtype=dtype, batch=batch, heads=heads, heads_kv=heads_kv, seq=seq,
                 head_dim=of_q, head_dim_v=of_v if of_v != of_q else 0, causal=causal, layout="bshd" if name in OTHERS else layout, mode="graph", policy=peer.policy, **cells)


def flash(rows, small, path=None, seconds=float("inf"), layouts=("bhsd",), rounds=4):
    warnings.filterwarnings("ignore")
    torch.manual_seed(1)
    ours, end = None, time.monotonic() + seconds
    if path and not library.is_of_tree(path):
        print(f"  {path} has other kernels than this tree, whose commit rows have (make lib): no rows stepbench, no ratios")
    elif path:
        ours = attempt("stepbench", lambda: library.Library(path, "cuda"))
    else:
        print("  libstepbench.so was not found (make lib, or STEPBENCH_LIB): no rows stepbench, no ratios")
    others, shapes = installed(), [(layout, shape) for layout in layouts for shape in (SMALL if small else SHAPES)]
    for place, (layout, shape) in enumerate(shapes):
        if time.monotonic() > end:
            print(f"  {place} of {len(shapes)} shapes ran; no time is left")
            break
        attempt(f"shape {shape}", lambda: measure(rows, shape, ours, others, layout, rounds))
        torch.cuda.empty_cache()
