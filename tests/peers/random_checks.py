#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random problems against PyTorch, beside the tests, whose shapes were chosen by the people who wrote the kernels.

Attention: the op `flash` of libstepbench.so, forward and backward, against PyTorch in fp64 on the same tensors. The bounds are
those of the benches (common/core/check.h). They hold for tensors as large as their terms. A gradient whose terms cancel, as where
a query sees few keys, keeps the errors of the terms (tests/gpu/judge.c): where PyTorch's own gradient has such an error, too, it
is counted apart. PyTorch's own error is that of scaled_dot_product_attention in the same dtype, for tf32 and bf16x3 in fp32.

Models: tests/golden/make_golden_model.py draws their sizes and computes three steps of each in fp64; test_model compares ours in
each precision, and with each kind of attention and fusion in fp32."""
import argparse
import collections
import ctypes
import dataclasses
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import library  # noqa: E402

EXIT_OK, EXIT_WRONG, EXIT_NOTHING = 0, 3, 77
TENSORS = ("o", "dq", "dk", "dv")
BOUNDS = {"bf16": (1e-2, 1.5e-2), "fp16": (2e-3, 3e-3), "tf32": (2e-3, 3e-3), "fp32": (2.8e-6, 4e-6), "bf16x3": (2e-5, 2e-5)}
SCORE_ROUNDING = {"bf16": 2**-22, "fp16": 2**-22, "tf32": 2**-11, "fp32": 2**-22, "bf16x3": 2**-18}  # relative, in flash (docs/kernels/forward.md)


@dataclasses.dataclass(frozen=True)
class Problem:
    """Names as in kernels/kernels.h. `documents` holds (queries, keys) of each document, or nothing."""
    dtype: str
    batch: int
    heads: int
    heads_kv: int
    seq_q: int
    seq_k: int
    head_dim: int
    head_dim_v: int
    causal: bool
    window: tuple
    documents: tuple
    layout: str
    scale: float  # 0: 1 / sqrt(head_dim)
    deterministic: bool

    def __str__(self):
        words = [f"B{self.batch} H{self.heads}/{self.heads_kv} Sq{self.seq_q} Sk{self.seq_k} D{self.head_dim}/{self.head_dim_v}",
                 self.layout]
        words += ["causal"] if self.causal else []
        words += [f"window {self.window[0]},{self.window[1]}"] if self.window else []
        words += ["documents " + "+".join(f"{q}:{k}" for q, k in self.documents)] if self.documents else []
        words += [f"scale {self.scale:.3g}"] if self.scale else []
        words += ["deterministic"] if self.deterministic else []
        return f"{self.dtype:6} " + " ".join(words)


def length(draw):
    """1 to 2048, with as many short ones as long ones."""
    return min(2048, round(2 ** draw.uniform(0, 11)) + draw.randint(0, 3))


def draw_problem(draw):
    heads_kv, group = draw.randint(1, 4), draw.choice((1, 1, 2, 3, 4, 8))
    head_dim = 8 * draw.randint(2, 32)
    seq_q = length(draw)
    documents = ()
    if draw.random() < 0.2:
        documents = tuple((draw.choice((0, length(draw) // 4 + 1)), draw.choice((0, length(draw) // 4 + 1))) for _ in range(draw.randint(1, 6)))
        documents += ((length(draw) // 4 + 1, length(draw) // 4 + 1),)
    causal = draw.random() < 0.6
    window = ()
    if draw.random() < 0.25:
        window = (draw.choice((-1, draw.randint(0, 300))), 0 if causal else draw.choice((-1, draw.randint(0, 300))))
    return Problem(
        dtype=draw.choice(tuple(BOUNDS)), batch=1 if documents else draw.randint(1, 3), heads=heads_kv * group, heads_kv=heads_kv,
        seq_q=sum(q for q, _ in documents) if documents else seq_q,
        seq_k=sum(k for _, k in documents) if documents else draw.choice((seq_q, seq_q, length(draw))),
        head_dim=head_dim, head_dim_v=head_dim if draw.random() < 0.7 else 8 * draw.randint(2, 32), causal=causal, window=window,
        documents=documents, layout=draw.choice(("bhsd", "bshd", "padded")),
        scale=0.0 if draw.random() < 0.8 else head_dim**-0.5 * 2 ** draw.uniform(-2, 2), deterministic=draw.random() < 0.3)


# ---- what follows needs PyTorch ----

def empty(problem, heads, seq, columns, dtype, device):
    """A (B,H,S,D) view of NaN in the problem's layout; `padded`: rows of a wider buffer, as where q, k and v are made together."""
    import torch
    wider = columns + 16 if problem.layout == "padded" else columns
    order = (heads, seq) if problem.layout == "bhsd" else (seq, heads)
    buffer = torch.full((problem.batch, *order, wider), float("nan"), dtype=dtype, device=device)
    return (buffer if problem.layout == "bhsd" else buffer.transpose(1, 2))[..., :columns]


def visible(problem, device):
    """Which keys a query sees, (Sq, Sk): masks are aligned at the bottom right, of each document if there are any."""
    import torch
    seen = torch.zeros(problem.seq_q, problem.seq_k, dtype=torch.bool, device=device)
    first_q = first_k = 0
    for queries, keys in problem.documents or ((problem.seq_q, problem.seq_k),):
        distance = torch.arange(keys, device=device) - torch.arange(queries, device=device)[:, None] - (keys - queries)
        part = torch.ones_like(distance, dtype=torch.bool)
        if problem.causal:
            part &= distance <= 0
        if problem.window:
            left, right = problem.window
            part &= (distance >= -left) if left >= 0 else True
            part &= (distance <= right) if right >= 0 else True
        seen[first_q:first_q + queries, first_k:first_k + keys] = part
        first_q, first_k = first_q + queries, first_k + keys
    return seen


def with_gradients(function, q, k, v, grad):
    """o, dq, dk, dv of function(q, k, v) with k and v repeated for the query heads that share them."""
    import torch
    inputs = [t.detach().requires_grad_() for t in (q, k, v)]
    group = q.shape[1] // k.shape[1]
    out = function(inputs[0], *(t.repeat_interleave(group, 1) for t in inputs[1:]))
    return (out.detach(), *torch.autograd.grad(out, inputs, grad))


def exact(problem, tensors, seen):
    """o, dq, dk, dv in fp64, lse, and the largest score."""
    import torch
    scale, some = problem.scale or problem.head_dim**-0.5, seen.any(-1)
    found = {}

    def attention(q, k, v):
        scores = (scale * q @ k.transpose(-1, -2)).masked_fill(~seen, float("-inf"))
        found["lse"] = torch.logsumexp(scores.detach(), -1)
        found["largest"] = float(scores.detach().masked_fill(~seen, 0).abs().max())
        weights = torch.softmax(torch.where(some[:, None], scores, torch.zeros_like(scores)), -1)
        return torch.where(some[:, None], weights @ v, 0.0)

    results = with_gradients(attention, *(t.double() for t in tensors))
    return results, found["lse"], found["largest"]


def of_pytorch(problem, tensors, seen):
    """o, dq, dk, dv of scaled_dot_product_attention in the dtype of the tensors."""
    import torch
    some = seen.any(-1)
    mask = torch.where(some[:, None], seen, True)

    def attention(q, k, v):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=problem.scale or None)
        return torch.where(some[:, None], out, torch.zeros_like(out))

    return with_gradients(attention, *(t.contiguous() for t in tensors))


def of_ours(ours, problem, tensors, device):
    """o, dq, dk, dv and lse by the op `flash`, or the sentence by which it does not take the problem."""
    import torch
    q, k, v, grad = tensors
    outputs = tuple(empty(problem, t.shape[1], t.shape[2], t.shape[3], t.dtype, device) for t in (grad, q, k, v))
    lse, kept = torch.full(q.shape[:3], float("nan"), device=device), []
    a = library.problem_of(problem.dtype, tensors, outputs, lse, causal=problem.causal, deterministic=problem.deterministic,
                           scale=problem.scale)
    if problem.window:
        a.windowed, (a.window_left, a.window_right) = True, problem.window
    if problem.documents:
        for name, lengths in zip(("cu_seqlens_q", "cu_seqlens_k"), zip(*problem.documents)):
            borders = torch.tensor((0, *lengths), device=device).cumsum(0).to(torch.int32)
            kept.append(borders)
            setattr(a, name, borders.data_ptr())
        a.packed, a.documents = True, len(problem.documents)
    op, address = ours.ops["flash"], ctypes.byref(a)
    if op.supported(ours.context, address) != library.OK:
        return ours.library.sb_last_message().decode()
    saved, a.workspace_bytes = ours.bytes_of(op, a)
    for name, size in (("saved", saved), ("workspace", a.workspace_bytes)):
        memory = torch.empty(size + 256, dtype=torch.uint8, device=device)
        kept.append(memory)
        setattr(a, name, library.aligned(memory))
    stream = torch.cuda.current_stream().cuda_stream if device == "cuda" else None
    ours.must(op.forward(ours.context, address, stream))
    ours.must(op.backward(ours.context, address, stream))
    if device == "cuda":
        torch.cuda.synchronize()
    return outputs, lse


def rms(t):
    return float(t.double().square().mean().sqrt()) if t.numel() else 0.0


def relative(found, wanted):
    """L2 of the error over L2 of what is wanted; where that is nothing, the rms of what was found. Not a number stays one."""
    size = float(wanted.double().norm())
    return float((found.double() - wanted.double()).norm()) / size if size else rms(found)


def terms_over_result(problem, tensors, wanted):
    """How much larger than dq, dk their terms are before they cancel, as tests/gpu/judge.c has it."""
    q, k, v, grad = tensors
    scale = problem.scale or problem.head_dim**-0.5
    dp = problem.head_dim_v**0.5 * rms(grad) * rms(v)
    terms = {"dq": scale * dp * rms(k),
             "dk": scale * dp * rms(q) * (problem.heads / problem.heads_kv * problem.seq_q / max(1, problem.seq_k))**0.5}
    return {name: max(1.0, terms.get(name, 0) / max(rms(t), 1e-30)) for name, t in zip(TENSORS, wanted)}


Judged = collections.namedtuple("Judged", "verdict errors shares theirs")  # shares: of the bounds


def judge(problem, tensors, ours, lse, device):
    """Four times PyTorch's error is what the bound of fp32 allows. Its attention has neither tf32 nor bf16x3."""
    import torch
    of_theirs = problem.dtype if problem.dtype in ("bf16", "fp16") else "fp32"
    seen = visible(problem, device)
    wanted, wanted_lse, largest = exact(problem, tensors, seen)
    of_scores = SCORE_ROUNDING[problem.dtype] * largest  # a score wrong by x makes its weight wrong by x
    theirs = [relative(a, b) for a, b in zip(of_pytorch(problem, tensors, seen), wanted)]
    cancelled = terms_over_result(problem, tensors, wanted)
    errors, shares, verdict = [], [], "ok"
    for name, found, want, of_peer in zip(TENSORS, ours, wanted, theirs):
        bound = BOUNDS[problem.dtype][name != "o"]
        as_pytorch = 4 * of_peer * bound / BOUNDS[of_theirs][name != "o"]
        bound += of_scores if problem.scale else 0
        error = relative(found, want)
        errors.append(error)
        shares.append(error / bound)
        if not (error <= bound or (error <= bound * cancelled[name] and error <= as_pytorch)):
            verdict = "FAILED"
        elif error > bound and verdict == "ok":
            verdict = "cancels"
    bound, none = BOUNDS[problem.dtype][0] + of_scores, wanted_lse == float("-inf")
    close = torch.where(none, lse == wanted_lse, (lse - wanted_lse).abs() <= bound * wanted_lse.abs().clamp(min=1))
    blind = ~seen.any(-1)
    if not bool(close.all()) or any(float(t[:, :, blind].abs().sum()) != 0 for t in ours[:2]):
        verdict = "FAILED"
    return Judged(verdict, errors, shares, theirs)


def attention(options):
    """Prints a summary by dtype, and the problems that are not within the bounds. True if none failed."""
    import torch
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
    draw, ours = random.Random(options.seed), library.Library(options.lib, options.device)
    torch.manual_seed(options.seed)
    judged, others, refused = collections.defaultdict(list), [], collections.Counter()
    while sum(map(len, judged.values())) < options.attention:
        problem = draw_problem(draw)
        kind = kinds.get(problem.dtype, torch.float32)
        sizes = ((problem.heads, problem.seq_q, problem.head_dim), (problem.heads_kv, problem.seq_k, problem.head_dim),
                 (problem.heads_kv, problem.seq_k, problem.head_dim_v), (problem.heads, problem.seq_q, problem.head_dim_v))
        tensors = [empty(problem, *size, kind, options.device).normal_() for size in sizes]
        result = of_ours(ours, problem, tensors, options.device)
        if isinstance(result, str):
            refused[re.sub(r"(head_dim\w*) \d+", r"\1", result)] += 1
            continue
        found = judge(problem, tensors, *result, options.device)
        judged[problem.dtype].append(found)
        if found.verdict != "ok" or options.verbose:
            errors = " ".join(f"{name} {mine:.1e} ({theirs:.1e})" for name, mine, theirs in zip(TENSORS, found.errors, found.theirs))
            others.append(f"{found.verdict:8}{problem}: {errors}")
        del tensors, result
    where = torch.cuda.get_device_name() if options.device == "cuda" else "the CPU backend"
    print(f"# {options.attention} random problems of attention, seed {options.seed}, on {where}, against PyTorch {torch.__version__} in fp64.")
    print("# Relative L2 errors of o, dq, dk, dv. of_bound: the largest over its bound where nothing cancels. ours/PyTorch: our error")
    print("# over that of scaled_dot_product_attention in the same dtype, for tf32 and bf16x3 in fp32.")
    print(f"{'dtype':8}{'problems':>9}{'ok':>6}{'cancel':>8}{'failed':>8}{'of_bound':>10}{'ours/PyTorch: median':>22}{'largest':>9}")
    for dtype in BOUNDS:
        of = judged[dtype]
        if not of:
            continue
        count = collections.Counter(j.verdict for j in of)
        ratios = [mine / theirs for j in of for mine, theirs in zip(j.errors, j.theirs) if theirs > 0]
        within = max((share for j in of if j.verdict == "ok" for share in j.shares), default=0)
        print(f"{dtype:8}{len(of):9}{count['ok']:6}{count['cancels']:8}{count['FAILED']:8}{within:10.2f}"
              f"{statistics.median(ratios) if ratios else 0:22.2f}{max(ratios, default=0):9.2f}")
    if others:
        print("# Verdict, problem, and of each tensor our error (PyTorch's):")
    print(*others, sep="\n", end="\n" if others else "")
    for sentence, times in refused.items():
        print(f"# not taken, {times} times: {sentence}")
    counted = collections.Counter(j.verdict for of in judged.values() for j in of)
    print(f"attention: {counted['ok']} ok, {counted['cancels']} whose gradients cancel, {counted['FAILED']} failed", flush=True)
    ours.close()
    return counted["FAILED"] == 0


def models(options):
    """Prints what test_model says of random models. True if it passed."""
    with tempfile.TemporaryDirectory() as folder:
        maker = [sys.executable, f"{library.ROOT}/tests/golden/make_golden_model.py", folder]
        subprocess.run([*maker, "--random", str(options.models), "--seed", str(options.seed)], check=True, stdout=subprocess.DEVNULL)
        with open(f"{folder}/MANIFEST_MODEL") as file:
            made = file.read().splitlines()
        print(f"# {options.models} random models, {made[0]}; {made[1].split(' ', 2)[2]}:")
        for line in made[2:]:
            print("#", line.split(" ", 1)[1])
        sys.stdout.flush()
        test = subprocess.run([options.model_test, folder], env={**os.environ, "STEPBENCH_TEST_DEVICE": options.device},
                              capture_output=True, text=True, check=False)
        lines = (test.stdout + test.stderr).splitlines()
        print(*(line for line in lines if line.startswith("random_") or "FAILED" in line or "ERROR" in line), sep="\n")
    print(f"models: {'all' if test.returncode == 0 else 'NOT all'} agree (test_model ended with {test.returncode})")
    return test.returncode == 0


def main():
    parser = argparse.ArgumentParser(prog="random_checks.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of shapes, options and values (default: 1)")
    parser.add_argument("--attention", type=int, default=120, metavar="N", help="problems of attention (default: 120)")
    parser.add_argument("--models", type=int, default=6, metavar="N", help="models (default: 6)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--lib", default=library.default_path(), help="libstepbench.so; default: STEPBENCH_LIB, or the build's")
    parser.add_argument("--model-test", default=f"{library.ROOT}/build/tests/train/test_model", help="default: the one of make test")
    parser.add_argument("--verbose", action="store_true", help="a line for each problem of attention, not only for those that are not ok")
    parser.add_argument("--list", action="store_true", help="print the problems of attention that are drawn first, and exit")
    options = parser.parse_args()
    if min(options.attention, options.models) < 0 or options.attention + options.models == 0:
        parser.error("--attention and --models must not be negative, and one of them must be more than 0")
    if options.list:
        draw = random.Random(options.seed)
        print(*(draw_problem(draw) for _ in range(options.attention)), sep="\n")
        return EXIT_OK
    try:
        import torch
    except ImportError:
        print(f"random_checks.py: {sys.executable} has no module torch", file=sys.stderr)
        return EXIT_NOTHING
    if options.device == "cuda" and not torch.cuda.is_available():
        print("random_checks.py: PyTorch sees no GPU; --device cpu checks the CPU backend", file=sys.stderr)
        return EXIT_NOTHING
    if options.attention and not (options.lib and os.path.exists(options.lib)):
        parser.error(f"--lib: there is no {options.lib or 'libstepbench.so'}; make lib makes it")
    if options.models and not os.access(options.model_test, os.X_OK):
        parser.error(f"--model-test: there is no {options.model_test}; make test builds it")
    right = [run(options) for run, count in ((attention, options.attention), (models, options.models)) if count]
    return EXIT_OK if all(right) else EXIT_WRONG


if __name__ == "__main__":
    sys.exit(main())
