# SPDX-License-Identifier: MIT
"""Attention of PyTorch's backends, of FlashAttention-4 and (forward) -3 where they are installed, and ours, in turn in one process;
in windows, packed documents and deterministic backwards of FlexAttention, too.

Each implementation's calls are captured in a CUDA graph; rounds replay the graphs one after the other, each for so long that
it runs at the clock that it can hold alone. A ratio is the peer's time over ours in the same round: above 1, ours is faster."""
import contextlib
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
import flash_cases
import library
import random_checks
import start
from record import chosen, reason_of

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
BACKENDS = {"sdpa_cudnn": SDPBackend.CUDNN_ATTENTION, "sdpa_fa2": SDPBackend.FLASH_ATTENTION, "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION}
REFERENCE_BYTES = 4 << 30  # of the fp64 score matrix of a head of keys; beyond it differences are to ours


class Task:
    """A case with its tensors q, k, v, d_o, (B,H,S,D), and where its documents begin and end."""

    def __init__(self, case, layout="bhsd", device="cuda"):
        self.case, of_v = case, case.head_dim_v or case.head_dim
        batch, seq = flash_cases.tokens(case)
        self.borders = start.document_borders(case.documents, seq, case.lengths) if case.documents else [0, seq]
        lengths = [end - begin for begin, end in zip(self.borders, self.borders[1:])]
        packed = self.borders if case.documents else range(0, (batch + 1) * seq, seq)  # sequences behind each other
        self.longest, self.cu_seqlens = max(lengths), torch.tensor(packed, dtype=torch.int32, device=device)
        self.problem = random_checks.Problem(
            case.dtype, batch, case.heads, case.heads_kv, seq, seq, case.head_dim, of_v, bool(case.causal),
            (case.window, 0) if case.window >= 0 else (), tuple(zip(lengths, lengths)) if case.documents else (), layout, 0.0,
            bool(case.deterministic))
        sizes = (case.heads, case.head_dim), (case.heads_kv, case.head_dim), (case.heads_kv, of_v), (case.heads, of_v)
        self.tensors = [random_checks.empty(self.problem, heads, seq, columns, DTYPES[case.dtype], device).normal_() for heads, columns in sizes]


class Ours:
    """The op `flash` of libstepbench.so on the same tensors."""
    policy = "libstepbench.so, flash"

    def __init__(self, ours, task):
        case, (q, k, v, grad) = task.case, task.tensors
        self.ours, self.op, self.kept = ours, ours.ops["flash"], task.cu_seqlens
        self.out, self.dq, self.dk, self.dv = (torch.full_like(t, float("nan")) for t in (grad, q, k, v))
        self.lse = torch.empty(q.shape[:3], device=q.device)
        options = {"causal": bool(case.causal), "deterministic": bool(case.deterministic)}
        if case.window >= 0:
            options |= {"windowed": True, "window_left": case.window, "window_right": 0}
        if case.documents:
            borders = task.cu_seqlens.data_ptr()
            options |= {"packed": True, "documents": case.documents, "cu_seqlens_q": borders, "cu_seqlens_k": borders}
        problem = library.problem_of(case.dtype, task.tensors, (self.out, self.dq, self.dk, self.dv), self.lse, **options)
        self.problem, self.address = problem, ctypes.byref(problem)
        ours.must(self.op.supported(ours.context, self.address))
        saved, scratch = ours.bytes_of(self.op, problem)
        self.memory = [torch.empty(size + 256, dtype=torch.uint8, device=q.device) for size in (saved, scratch)]
        problem.saved, problem.workspace = (library.aligned(memory) for memory in self.memory)
        problem.workspace_bytes = scratch

    def call(self, op):
        self.ours.must(op(self.ours.context, self.address, torch.cuda.current_stream().cuda_stream if self.out.is_cuda else None))

    def forward(self):
        self.call(self.op.forward)

    def backward(self):
        self.call(self.op.backward)

    def results(self):
        self.forward()
        self.backward()
        return self.out, self.dq, self.dk, self.dv


class Peer:
    """A function of q, k, v under autograd; `around` is entered around its passes."""

    def __init__(self, function, tensors, policy, around=contextlib.nullcontext):
        *inputs, self.grad = tensors
        self.function, self.policy, self.around = function, policy, around
        self.inputs = [t.detach().requires_grad_() for t in inputs]
        with around():
            self.out = function(*self.inputs)

    def forward(self):
        with torch.no_grad(), self.around():
            self.function(*self.inputs)

    def backward(self):
        with self.around():
            return torch.autograd.grad(self.out, self.inputs, self.grad, retain_graph=True)

    def results(self):
        return (self.out.detach(), *self.backward())


@contextlib.contextmanager
def deterministic():
    """PyTorch's deterministic algorithms. They also fill memory that is new, which has nothing to do with attention."""
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def sdpa(backend, task):
    case = task.case

    def function(q, k, v):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=bool(case.causal), **({"enable_gqa": True} if case.heads != case.heads_kv else {}))
    return Peer(function, task.tensors, f"scaled_dot_product_attention, {backend.name}" + (", deterministic algorithms" if case.deterministic else ""),
                deterministic if case.deterministic else contextlib.nullcontext)


def own_layout(task):
    """(B,S,H,D), of packed documents (S,H,D): the copies are made before anything is timed."""
    tensors = [t.transpose(1, 2).contiguous() for t in task.tensors]
    return [t.squeeze(0) for t in tensors] if task.case.documents else tensors


def heads_first(task, t):
    return t.reshape(task.problem.batch, task.problem.seq_q, *t.shape[-2:]).transpose(1, 2)


class TokensFirst(Peer):
    """A peer in its own layout."""

    def __init__(self, task, *arguments):
        super().__init__(*arguments)
        self.task = task

    def results(self):
        return tuple(heads_first(self.task, t) for t in super().results())


class Varlen(TokensFirst):
    """FlashAttention-2 of PyTorch, which takes windows and documents here alone. A window of (-1, 0) is a causal mask."""

    def __init__(self, task):
        attention = importlib.import_module("torch.nn.attention.varlen").varlen_attn
        window, borders = task.problem.window or (-1, 0), (task.cu_seqlens, task.cu_seqlens, task.longest, task.longest)
        tensors = [t.flatten(0, 1) if t.dim() == 4 else t for t in own_layout(task)]
        super().__init__(task, lambda q, k, v: attention(q, k, v, *borders, window_size=window), tensors, "varlen_attn, layout thd")


def flex_mask(task):
    """Which keys a query sees, for flex_attention: the causal ones in its window, if it has one, and document."""
    window, packed = task.case.window, task.case.documents > 0
    tokens = torch.arange(task.borders[-1], device=task.cu_seqlens.device)
    document = torch.bucketize(tokens, task.cu_seqlens, right=True)

    def mask(batch, head, query, key):
        seen = query >= key
        if window >= 0:
            seen = seen & (query - key <= window)
        return seen & (document[query] == document[key]) if packed else seen
    return mask


class Flex(Peer):
    """FlexAttention with the block sizes that win a race."""

    def __init__(self, task):
        flex, case, seq = importlib.import_module("torch.nn.attention.flex_attention"), task.case, task.borders[-1]
        importlib.import_module("torch._functorch.config").donated_buffer = False  # the backward is called again and again
        importlib.import_module("torch._inductor.select_algorithm").PRINT_AUTOTUNE = False
        torch.compiler.reset()  # a function that has been compiled for several shapes is not compiled for others
        mask = flex.create_block_mask(flex_mask(task), None, None, seq, seq)
        attention = torch.compile(flex.flex_attention, dynamic=False, fullgraph=True, mode="max-autotune-no-cudagraphs")
        super().__init__(lambda q, k, v: attention(q, k, v, block_mask=mask, enable_gqa=case.heads != case.heads_kv), task.tensors,
                         "flex_attention, torch.compile, max-autotune-no-cudagraphs")


def of_flash_attention(module, task):
    """The function of flash-attn's interfaces, the tensors in its layout, and its options: those only that a case needs, since
    not every version has all of them."""
    case, function, options = task.case, module.flash_attn_func, {"causal": bool(task.case.causal)}
    if case.window >= 0:
        options["window_size"] = task.problem.window
    if case.deterministic:
        options["deterministic"] = True
    if case.documents:
        function = module.flash_attn_varlen_func
        options |= {"cu_seqlens_q": task.cu_seqlens, "cu_seqlens_k": task.cu_seqlens, "max_seqlen_q": task.longest, "max_seqlen_k": task.longest}

    def attention(q, k, v):
        out = function(q, k, v, **options)
        return out[0] if isinstance(out, tuple) else out
    return attention, own_layout(task), "layout thd" if case.documents else "layout bshd"


class FlashAttention4(TokensFirst):
    def __init__(self, module, task):
        attention, tensors, layout = of_flash_attention(module, task)
        super().__init__(task, attention, tensors, f"flash_attn.cute, {layout}")


class FlashAttention3:
    """The package fa3-fwd: the kernels of FlashAttention-3 without a backward."""

    def __init__(self, module, task):
        self.function, tensors, layout = of_flash_attention(module, task)
        self.task, self.inputs, self.policy = task, tensors[:3], f"fa3_fwd, {layout}"

    def forward(self):
        with torch.no_grad():
            return self.function(*self.inputs)

    def results(self):
        return (heads_first(self.task, self.forward()),)


OTHERS = {"fa4": ("FlashAttention-4", "flash_attn.cute.interface", FlashAttention4),
          "fa3": ("FlashAttention-3", "fa3_fwd_interface", FlashAttention3)}


def installed():
    """By name, what makes each of the other packages' attention of a task; says of the others why not."""
    found = {}
    for name, (title, module, kind) in OTHERS.items():
        try:
            imported = importlib.import_module(module)
            kind(imported, Task(flash_cases.plain("bf16", 1, 2, 2, 256, 128, 1))).results()
            found[name] = functools.partial(kind, imported)
        except BaseException as error:  # compilers of kernels end in many ways
            if isinstance(error, KeyboardInterrupt):
                raise
            print(f"  {title} is not available ({reason_of(error)}): no rows {name}")
    return found


def exact(task):
    """fp64 forward and backward, a head of keys after the other, the score matrix and all."""
    (q, k, v, grad), seen = task.tensors, random_checks.visible(task.problem, task.tensors[0].device)
    parts = zip(*(t.chunk(k.shape[1], 1) for t in (q, k, v, grad)))
    found = [random_checks.exact(task.problem, part, seen)[0] for part in parts]
    return tuple(torch.cat(heads, 1) for heads in zip(*found))


def difference(found, wanted):
    """Relative L2, the largest over the batch; not a number stays one."""
    return max(float((a.double() - b.double()).norm() / b.double().norm()) for a, b in zip(found, wanted))


def attempt(what, make, notes=None):
    """What it makes, or nothing after saying why; `notes` keep the first reason by the name before the comma."""
    try:
        return make()
    except Exception as error:  # a backend that does not take a shape is no end
        torch.cuda.synchronize()
        print(f"  {what} was not run: {reason_of(error)}")
        if notes is not None:
            notes.setdefault(what.split(",")[0], reason_of(error))
        return None


def implementations(task, ours, others, notes):
    case, makers = task.case, {}
    if ours:
        makers["stepbench"] = lambda: Ours(ours, task)
    if case.window >= 0 or case.documents:
        makers["varlen_fa2"] = lambda: Varlen(task)
    else:
        makers |= {name: functools.partial(sdpa, backend, task) for name, backend in BACKENDS.items()
                   if (case.dtype == "bf16") != (name == "sdpa_efficient")}  # in bf16 it is several times slower than the others
    if case.kind != "plain":
        makers["flex"] = lambda: Flex(task)
    if case.dtype == "bf16":
        makers |= {name: functools.partial(make, task) for name, make in others.items() if not (case.deterministic and name == "fa3")}
    made = {name: attempt(name, make, notes) for name, make in makers.items()}
    return {name: peer for name, peer in made.items() if peer}


def compare(made, task, notes):
    """What the results are compared with, and each implementation's largest difference forward and backward. What is to give the
    same bits runs twice."""
    case, (batch, seq) = task.case, flash_cases.tokens(task.case)
    if batch * case.heads // case.heads_kv * seq * seq * 8 <= REFERENCE_BYTES:
        reference, wanted = "fp64", exact(task)
    elif "stepbench" in made:
        reference, wanted = "stepbench", made["stepbench"].results()
    else:
        return "", {}
    found = {}
    for name, peer in made.items():
        results = attempt(f"{name}, backward", peer.results, notes)
        if results and case.deterministic:
            results = [t.clone() for t in results]
            if not all(map(torch.equal, results, peer.results())):
                notes[name] = "its gradients differ from run to run"
        if results:
            found[name] = [max((difference([a], [b]) for a, b in pairs), default="")
                           for pairs in (zip(results[:1], wanted[:1]), zip(results[1:], wanted[1:]))]
    return reference, found


def time_pass(made, direction, stream, rounds, notes):
    graphs = {name: attempt(f"{name}, {direction}", lambda peer=peer: clock.capture(getattr(peer, direction), stream), notes)
              for name, peer in made.items() if hasattr(peer, direction)}
    return clock.in_turn({name: graph for name, graph in graphs.items() if graph}, rounds)


def ratios(times, name, short):
    if name == "stepbench" or name not in times or "stepbench" not in times:
        return {}
    each = [theirs / mine for theirs, mine in zip(times[name], times["stepbench"])]
    return {f"{short}_ratio": statistics.median(each), f"{short}_ratio_lo": min(each), f"{short}_ratio_hi": max(each)}


def measure(rows, case, ours, others, layout, rounds):
    stream, notes = torch.cuda.Stream(), {}
    with torch.cuda.stream(stream):
        task = Task(case, layout)
        made = implementations(task, ours, others, notes)
        reference, differences = compare(made, task, notes)
    torch.cuda.synchronize()
    passes = {"forward": "fwd", "backward": "bwd"}
    if case.deterministic:  # the forward is the plain one, and what gives other bits is not timed
        passes, made = {"backward": "bwd"}, {name: peer for name, peer in made.items() if name not in notes}
    times = {direction: time_pass(made, direction, stream, rounds, notes) for direction in passes}
    of_q, of_v = case.head_dim, case.head_dim_v or case.head_dim
    flops_of_column = 2.0 * case.heads * flash_cases.pairs(case, task.borders)
    columns = {"forward": of_q + of_v, "backward": 3 * of_q + 2 * of_v}  # of all products together
    for name in [*made, *(name for name in notes if name not in made)]:
        cells = {"note": notes[name]} if name in notes else {}
        for direction, short in passes.items():
            if name in times[direction]:
                ms = statistics.median(times[direction][name])
                tflops = columns[direction] * flops_of_column / ms / 1e9
                cells |= {f"{short}_ms": ms, f"{short}_tflops": tflops, **ratios(times[direction], name, short)}
        if name in differences:
            cells |= {"reference": reference, "fwd_diff": differences[name][0], "bwd_diff": differences[name][1]}
        own = name in OTHERS or name == "varlen_fa2"
        rows.add(**flash_cases.columns(case), impl=name, layout="bshd" if own else layout, policy=made[name].policy if name in made else "", **cells)


def flash(rows, small, path=None, seconds=float("inf"), layouts=("bhsd",), rounds=4, words=""):
    warnings.filterwarnings("ignore")
    torch.manual_seed(1)
    ours, end = None, time.monotonic() + seconds
    if path and not library.is_of_tree(path):
        print(f"  {path} has other kernels than this tree, whose commit rows have (make lib): no rows stepbench, no ratios")
    elif path:
        ours = attempt("stepbench", lambda: library.Library(path, "cuda"))
    else:
        print("  libstepbench.so was not found (make lib, or STEPBENCH_LIB): no rows stepbench, no ratios")
    cases = chosen(flash_cases.SMALL if small else flash_cases.CASES, words)
    others, shapes = installed(), [(layout, case) for layout in layouts for case in cases]
    for place, (layout, case) in enumerate(shapes):
        if time.monotonic() > end:
            print(f"  {place} of {len(shapes)} shapes ran; no time is left")
            break
        attempt(f"shape {' '.join(map(str, case))}", lambda: measure(rows, case, ours, others, layout, rounds))
        torch.cuda.empty_cache()
