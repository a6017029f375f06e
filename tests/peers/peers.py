#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures what others offer for the same work, for the report to set beside the benches' rows. Nothing of the suite
needs it. Each peer is a process of its own: one that fails does not stop the others, and one that is missing is named."""
import argparse
import contextlib
import csv
import ctypes
import importlib.util
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import flash_cases  # noqa: E402
import library  # noqa: E402
import load  # noqa: E402
import nccl_tests  # noqa: E402
import parallel_cases  # noqa: E402
import record  # noqa: E402
import steps  # noqa: E402
import titan  # noqa: E402

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_NOTHING = 0, 1, 2, 77
START_S = 20  # in which a process of PyTorch is ready for its first case

# What a peer is, what it needs, on how many GPUs at least, and the benches that do the same.
PEERS = {
    "gemm": ("PyTorch's matrix products and copies", "torch", 1, ("roofline",)),
    "fp8": ("PyTorch's products of float8", "torch", 1, ("mixed_precision",)),
    "adamw": ("PyTorch's fused AdamW", "torch", 1, ("transformer",)),
    "flash": ("attention by each backend of PyTorch, FlashAttention-4 and -3 where they are installed, and libstepbench.so, in turn; in windows, "
              "packed documents and deterministic backwards by FlexAttention, too", "torch", 1, ("flash",)),
    "model": ("training steps of PyTorch: compiled, in one CUDA graph, in bf16, float8, tf32 and fp32; eager by autocast", "torch", 1,
              ("transformer", "memory")),
    "ddp": ("DDP in one CUDA graph, FSDP2 and ZeroRedundancyOptimizer, compiled", "torch", 2, ("fsdp", "ddp_bucketed", "zero1")),
    "torchtitan": ("torchtitan's training of Llama 3 8B: FSDP2, compiled, in bf16 and float8; it is not compared by ratios", "torch torchtitan", 2,
                   ("fsdp",)),
    "checkpoint": ("torch.distributed.checkpoint: blocking, async, async with pinned memory", "torch", 1, ("checkpoint",)),
    "run": ("whole training runs on the file, order and start of bench_run: losses beside ours, with and without .item()", "torch", 1, ("run",)),
    "allreduce": ("torch.distributed's all-reduce, called and from CUDA graphs", "torch", 2, ("allreduce",)),
    "cp": ("attention of PyTorch's backends whose sequence is shared by ranks, an all-to-all over NCCL before and after", "torch", 2,
           ("cp",)),
    "tp": ("DTensor: layers shared by ranks, rows of norms and residuals, too; compiled, in one CUDA graph, also async", "torch", 2, ("tp",)),
    "pp": ("training steps over stages by torch.distributed.pipelining: 1F1B with stages as CUDA graphs, and ZBV as one graph", "torch", 2, ("pp",)),
    "nccl_tests": ("all_reduce_perf of nccl-tests, from the folder NCCL_TESTS", "nccl-tests", 2, ("allreduce",)),
}


def visible_gpus():
    """Without PyTorch: it takes seconds to import."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name not in ("", "-1")])
    return sum(line.startswith("GPU ") for line in record.output_of("nvidia-smi", "-L").splitlines())


def missing(name):
    """Why a peer cannot run here, or None."""
    _, needs, gpus, _ = PEERS[name]
    if needs == "nccl-tests":
        if not nccl_tests.program():
            return "NCCL_TESTS names no folder with all_reduce_perf"
    elif absent := [module for module in needs.split() if importlib.util.find_spec(module) is None]:
        return f"{sys.executable} has no module {absent[0]}"
    if visible_gpus() < gpus:
        return f"it needs {gpus} GPU{'s' if gpus > 1 else ''}, {visible_gpus()} can be seen"
    return None


LISTS = {"model": (steps.CASES, steps.SMALL, lambda case, _: steps.columns(case)), **parallel_cases.LISTS}
LISTED = {"flash": (flash_cases.CASES, flash_cases.SMALL), **LISTS}  # with those that a peer runs through by itself
APART = ("pp", "torchtitan", "tp")  # a process for each case; those of other lists share one, and its start


def command_of(name, options):
    small = ["--small"] if options.small else []
    launch = [sys.executable, f"{HERE}/launch.py", str(visible_gpus())]
    if name == "run":
        return [sys.executable, f"{HERE}/run.py", "--rows", options.out, *small]
    if name == "torchtitan":
        return [sys.executable, f"{HERE}/titan.py", str(visible_gpus()), options.out, *small]
    if name in ("cp", "tp", "pp", "checkpoint"):
        small += ["--cases", options.cases] if name == "checkpoint" and options.cases else []
        return [*launch, f"{HERE}/{name}.py", options.out, *small]
    if name in ("allreduce", "ddp"):
        return [*launch, f"{HERE}/parallel.py", name, options.out, *small]
    path = ["--lib", options.lib] if options.lib else []
    path += ["--cases", options.cases] if name == "flash" and options.cases else []
    return [sys.executable, os.path.abspath(__file__), "--one", name, "--out", options.out, *path, *small, "--timeout", str(options.timeout)]


def run_one(name, options):
    """In this process."""
    rows = record.Rows(name, options.out)
    if name == "nccl_tests":
        nccl_tests.nccl_tests(rows, options.small)
        return
    import torch
    torch.manual_seed(1)
    rows.facts = record.provenance()  # now with what PyTorch knows
    if name == "model":
        steps.model(rows, parallel_cases.numbered(LISTS[name][options.small], options.case))
    elif name == "fp8":
        import fp8
        fp8.fp8(rows, options.small)
    elif name == "flash":
        import flash
        flash.flash(rows, options.small, options.lib, options.timeout - START_S, words=options.cases)
    else:
        import kernels
        getattr(kernels, name)(rows, options.small)


def run_limited(command, seconds):
    """The exit code. After so many seconds the peer is asked to end, so that a launcher of ranks ends those, too: one that is
    killed leaves them on the GPUs, where they disturb whatever is measured next. So it is where this program is to end."""
    peer = subprocess.Popen(command)
    try:
        return peer.wait(seconds)
    except BaseException:
        peer.terminate()
        try:
            peer.wait(60)
        except subprocess.TimeoutExpired:
            peer.kill()
            peer.wait()
        raise


def ran(rows):
    """How many rows the peer's file has."""
    with contextlib.suppress(OSError), open(rows.path, newline="") as file:
        return sum(1 for _ in csv.reader(file)) - 1
    return 0


def fitting(waiting, cases, seconds, most):
    """As many of the waiting cases, in their order, as there is time for: a shorter one behind one that does not fit may still run."""
    chosen = []
    for number in waiting:
        if len(chosen) < most and cases[number].seconds <= seconds:
            chosen.append(number)
            seconds -= cases[number].seconds
    return chosen


def run_cases(name, options):
    """An exit code. Cases share a process until one ends it: that one is the first of the next process, and has a row that says how where
    it ends that, too, or has hung. So has what there is no time left for. Of pipelines one that ends well will do: a schedule that takes no compiled
    stage is a finding."""
    small = options.small
    cases, rows = LISTS[name][small], record.Rows(name, options.out)
    numbers = [number for number, case in enumerate(cases) if case in record.chosen(cases, options.cases)]
    if name == "ddp" and not small:
        numbers = parallel_cases.chosen(options.beside, options.full_loads, options.cases)
    waiting, well, end, apart = list(numbers), 0, time.monotonic() + options.timeout, name in APART
    left = lambda: end - time.monotonic()
    note = lambda number, text: rows.add(**LISTS[name][2](cases[number], visible_gpus()), note=text)
    while batch := fitting(waiting, cases, left() if apart else left() - START_S, 1 if apart else len(cases)):
        before, limit = ran(rows), min(cases[batch[0]].seconds, left()) if apart and not small else left()
        try:
            code = run_limited([*command_of(name, options), "--case", ",".join(map(str, batch))], limit)
        except subprocess.TimeoutExpired:
            code = f"no end within {limit:.0f} s"
        done = min(ran(rows) - before, len(batch))
        well += len(batch) if code == 0 else done
        if code != 0 and done < len(batch) and (done == 0 or isinstance(code, str) or code == -signal.SIGALRM):
            hangs = f"no end within {load.limit_s(cases[batch[done]].seconds)} s" if code == -signal.SIGALRM else f"exit code {code}"
            note(batch[done], code if isinstance(code, str) else hangs)
            done += 1
        waiting = [number for number in waiting if number not in (batch if code == 0 else batch[:done])]
    for number in waiting:
        note(number, f"not run: it takes about {cases[number].seconds} s, and {max(left(), 0):.0f} s are left")
    return int(well == 0 < len(numbers) if name == "pp" else well < len(numbers))


def asked(names, options):
    """Of these peers, those beside the benches that are named; where cases are chosen and some peer has a list of them, no others."""
    names = [name for name in names if not options.beside or set(PEERS[name][3]) & set(options.beside)]
    listed = [name for name in names if name in LISTED]
    return [name for name in listed if name in ("ddp", "tp")] if options.full_loads else options.cases and listed or names


def run_all(names, options):
    record.begin_run()
    ran, failed = 0, []
    for name in names:
        reason = missing(name)
        if reason:
            print(f"{name}: not run, {reason}; peer_{name}.csv gets no rows ({PEERS[name][0]})")
            continue
        print(f"{name}: {PEERS[name][0]}", flush=True)
        if name in LISTED and not record.chosen(LISTED[name][options.small], options.cases):
            print(f"{name}: not run, no case has the words '{options.cases}'; --list shows them")
            continue
        start = time.monotonic()
        try:
            code = run_cases(name, options) if name in LISTS else run_limited(command_of(name, options), options.timeout)
        except subprocess.TimeoutExpired:
            code = f"no end within {options.timeout} s"
        ran += 1
        if code != 0:
            failed.append(name)
            print(f"{name} failed: {code if isinstance(code, str) else f'exit code {code}'}", file=sys.stderr)
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
    if not ran:
        return EXIT_NOTHING
    return EXIT_FAILED if failed else EXIT_OK


# ---- the self-test: no GPU, no PyTorch ----

def attention_by_hand(q, k, v, grad, seq):
    """Causal attention of one head and its gradients on lists of rows."""
    width, width_v = len(k[0]), len(v[0])
    scale = 1 / math.sqrt(width)
    dot = lambda a, b: sum(x * y for x, y in zip(a, b))
    out, dq = [], []
    dk, dv = ([[0.0] * columns for _ in range(seq)] for columns in (width, width_v))
    for i in range(seq):
        weights = [math.exp(scale * dot(q[i], k[j])) for j in range(i + 1)]
        p = [w / sum(weights) for w in weights]
        out.append([sum(p[j] * v[j][c] for j in range(i + 1)) for c in range(width_v)])
        centre = dot(grad[i], out[i])
        ds = [p[j] * (dot(grad[i], v[j]) - centre) * scale for j in range(i + 1)]
        dq.append([sum(ds[j] * k[j][c] for j in range(i + 1)) for c in range(width)])
        for j in range(i + 1):
            for c in range(width):
                dk[j][c] += ds[j] * q[i][c]
            for c in range(width_v):
                dv[j][c] += p[j] * grad[i][c]
    return {"o": out, "dq": dq, "dk": dk, "dv": dv}


def test_library(path, width, width_v):
    """Our attention on the CPU through ctypes, against lists of Python."""
    seq = 5
    columns = dict(q=width, k=width, v=width_v, d_o=width_v, o=width_v, dq=width, dk=width, dv=width_v)
    values = {name: [[math.sin(1 + 7 * place + width * i + c) for c in range(columns[name])] for i in range(seq)]
              for place, name in enumerate(("q", "k", "v", "d_o"))}
    flat = {name: (ctypes.c_float * (seq * columns[name]))(*(x for row in rows for x in row)) for name, rows in values.items()}
    flat |= {name: (ctypes.c_float * (seq * columns[name]))() for name in ("o", "dq", "dk", "dv")}
    ours = library.Library(path, "cpu")
    op = ours.ops["flash"]
    problem = library.Attention(1, 1, 1, seq, seq, width, width_v if width_v != width else 0, library.DTYPES["fp32"], True)
    for name, array in flat.items():
        setattr(problem, name, library.Tensor(ctypes.addressof(array), seq * columns[name], seq * columns[name], columns[name]))
    lse, address = (ctypes.c_float * seq)(), ctypes.byref(problem)
    problem.lse = ctypes.addressof(lse)
    ours.must(op.supported(ours.context, address))
    bytes_needed = max(op.forward_workspace(ours.context, address), op.backward_workspace(ours.context, address))
    workspace = ctypes.create_string_buffer(bytes_needed + 256)
    problem.workspace, problem.workspace_bytes = (ctypes.addressof(workspace) + 255) // 256 * 256, bytes_needed
    ours.must(op.forward(ours.context, address, None))
    ours.must(op.backward(ours.context, address, None))
    ours.close()
    wanted = attention_by_hand(*(values[name] for name in ("q", "k", "v", "d_o")), seq)
    return [f"{name} of {width} / {width_v} columns differs by {error:.1e}" for name, rows in wanted.items()
            if not (error := max(abs(a - b) for a, b in zip(flat[name], (x for row in rows for x in row)))) < 1e-5]


NCCL_TESTS_OUTPUT = """# nccl-tests version 2.17.6 nccl-headers=22803 nccl-library=22803
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
        1024           256     float     sum      -1    10.44    0.10    0.10      0     9.80    0.10    0.10      0
  1073741824     268435456     float     sum      -1   4100.1  261.88  261.88      0   4101.2  261.81  261.81    N/A
"""


def test_nccl_tests():
    found, tool, nccl = nccl_tests.parse(NCCL_TESTS_OUTPUT)
    wanted = [(1024, 0, 10.44, 0.1, 0.1, "0"), (1024, 1, 9.8, 0.1, 0.1, "0"), (1 << 30, 0, 4100.1, 261.88, 261.88, "0"),
              (1 << 30, 1, 4101.2, 261.81, 261.81, "N/A")]
    cycles = list(nccl_tests.median_of([*found[:2], (1024, 0, 9.5, 0.11, 0.11, "1"), (1024, 0, 12.0, 0.09, 0.09, "0")]))
    middle = [(1024, 0, 10.44, 0.1, 0.1, "1", 9.5, 12.0), (1024, 1, 9.8, 0.1, 0.1, "0", 9.8, 9.8)]
    return [] if (found, tool, nccl, cycles) == (wanted, "2.17.6", "2.28.3", middle) else [f"nccl-tests: {found}, {tool}, {nccl}, {cycles}"]


TORCHTITAN_LOG = """[titan] 2026-11-30 14:58:53,475 - root - INFO - torchtitan version: 0.2.2 (0.0.0 means __version__ is not defined correctly).
[titan] 2026-11-30 14:58:55,203 - root - INFO - Training starts at step 1
[titan] 2026-11-30 14:59:14,666 - root - INFO - step:  1  loss: 12.26803  grad_norm:  1.4771  memory: 80.12GiB(57.31%)  tps: 412  tflops: 23.86  mfu: 2.41%
[titan] 2026-11-30 14:59:14,668 - root - INFO - Synchronizing and adjusting timeout for all ProcessGroups to 0:01:40
[titan] 2026-11-30 14:59:15,588 - root - INFO - step:  2  loss: 12.12431  grad_norm:  1.4781  memory: 84.00GiB(60.09%)  tps: 7,004  tflops: 405.63  mfu: 41.01%
[titan] 2026-11-30 14:59:16,591 - root - INFO - step:  3  loss: 12.02615  grad_norm: 11.4749  memory: 83.99GiB(60.08%)  tps: 7,400  tflops: 428.56  mfu: 43.33%
[titan] 2026-11-30 14:59:17,500 - root - INFO - step:  4  loss: 12.05634  grad_norm:  1.4780  memory: 83.99GiB(60.08%)  tps: 8,190  tflops: 474.32  mfu: 47.96%
[titan] 2026-11-30 14:59:18,447 - root - INFO - step:  5  loss: 12.08682  grad_norm:  1.4782  memory: 83.99GiB(60.08%)  tps: 8,194  tflops: 474.55  mfu: 47.98%
[titan] 2026-11-30 14:59:19,385 - root - INFO - step:  6  loss: 12.15725  grad_norm:  1.4774  memory: 83.99GiB(60.08%)  tps: 7,900  tflops: 457.52  mfu: 46.26%
[titan] 2026-11-30 14:59:20,420 - root - INFO - step:  7  loss: 12.09871  grad_norm:  1.4750  memory: 83.99GiB(60.08%)  tps: 8,300  tflops: 480.69  mfu: 48.60%
[titan] 2026-11-30 14:59:21,409 - root - INFO - step:  8  loss: 12.13635  grad_norm:     nan  memory: 83.99GiB(60.08%)  tps: 8,301  tflops: 480.74  mfu: 48.61%
[titan] 2026-11-30 14:59:22,340 - root - INFO - step:  9  loss: 12.03534  grad_norm:  1.4743  memory: 83.99GiB(60.08%)  tps: 8,302  tflops: 480.80  mfu: 48.61%
[titan] 2026-11-30 14:59:23,340 - root - INFO - step: 10  loss: 11.93534  grad_norm:  1.4743  memory: 83.99GiB(60.08%)  tps: 8,000  tflops: 463.31  mfu: 46.85%
[titan] 2026-11-30 14:59:24,374 - root - INFO - Process group destroyed
"""


def test_torchtitan():
    """The steps of a log, the median of the last eight, and what there is where steps, or all of them, are missing."""
    import tempfile
    case, lines = parallel_cases.TITAN[0], TORCHTITAN_LOG.splitlines()
    found, short = titan.steps_of(TORCHTITAN_LOG), "\n".join(lines[:-2])
    wrong = [] if len(found) == 10 and found[1] == (2, 12.12431, 84.0, 7004, 41.01) else [f"torchtitan's steps: {found}"]
    cells = titan.results(case, TORCHTITAN_LOG, "NVIDIA H200", planned=10)
    mfu = 100 * load.step_flops("llama3-8b", 8192, 1) / 989.4e12
    wanted = {"step_ms": 1000, "tokens_per_s": 8192, "mfu_full_pct": 47.97, "peak_gib": 84, "loss_first": 12.26803, "loss_last": 11.93534}
    if not math.isclose(cells.pop("mfu_pct", 0), mfu) or {name: round(value, 9) for name, value in cells.items()} != wanted:
        wrong.append(f"torchtitan: {cells}")
    for log, reason, planned, note, timed in ((short, "told to end", 10, "9 of 10 steps: told to end", True), ("\n".join(lines[:-3]), "", 8, "", False),
                                              ("", "", 16, "0 of 16 steps", False), (short.replace("12.03534", "nan"), "", 9, "the loss is not a number", True)):
        cells = titan.results(case, log, "NVIDIA H200", reason, planned)
        wrong += [] if (cells.get("note", ""), "step_ms" in cells) == (note, timed) else [f"torchtitan, {note or 'eight steps'}: {cells}"]
    fails = """mkdir -p {0}/log/run/attempt_0/0 && cd {0}/log/run/attempt_0/0 && [ -f "${{PYTHONPATH%%:*}}/titan_job.py" ] &&
    [ -z "${{PYTORCH_ALLOC_CONF-}}" ] && echo '[rank0]: torch.OutOfMemoryError: CUDA <out> of memory' >stderr.log; exit 3"""
    with unittest.mock.patch.object(titan, "command_of", lambda case, ranks, folder: ["bash", "-c", fails.format(folder)]), \
            unittest.mock.patch.dict(os.environ, PYTORCH_ALLOC_CONF="expandable_segments:True"), tempfile.TemporaryDirectory() as folder:
        log, reason = titan.run(case, 2)
        record.Rows("torchtitan", folder).add(**parallel_cases.titan_columns(case, 2), **titan.results(case, log, "", reason))
        row = rows_of(folder, "torchtitan")[0]
    if row["note"] != "0 of 16 steps: torch.OutOfMemoryError: CUDA (out) of memory" or row["step_ms"] or row["reduce"] != "bf16":
        wrong.append(f"torchtitan without memory: {row}")
    job = unittest.mock.Mock(**{"wait.side_effect": (SystemExit(143), 0, 0)})
    with unittest.mock.patch.object(titan.subprocess, "Popen", lambda *_, **__: job):
        ended = titan.run(case, 2)[1], [call[0] for call in job.method_calls]
    if ended != ("told to end", ["wait", "terminate", "wait", "kill", "wait"]):
        wrong.append(f"torchtitan that is told to end: {ended}")
    flags = [" ".join(titan.command_of(case, 2, "x")) for case in parallel_cases.TITAN]
    sums = [re.search("mixed_precision_reduce (\\w+)", text)[1] + (" float8" if "quantize.linear.float8" in text else "") for text in flags]
    return wrong + ([] if sums == ["bfloat16", "bfloat16 float8", "float32", "float32 float8"] else [f"torchtitan's cases: {sums}"])


def test_rows():
    """Every row says where it comes from; a file with other columns is moved aside, and unknown columns are refused."""
    import tempfile
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/peer_adamw.csv"
        with open(path, "w") as file:
            file.write("bench,old\n")
        rows = record.Rows("adamw", folder)
        rows.add(bench="adamw", impl="fused", params=5, policy='a "b", c', median_ms=0.123456789)
        rows.add(bench="adamw", impl="fused", params=6, median_ms=1.0)
        with open(path, newline="") as file:
            head, first, second = list(record.csv.reader(file))
        cells = dict(zip(head, first))
        if not os.path.exists(f"{folder}/peer_adamw.1.csv"):
            wrong.append("a file with other columns was not moved aside")
        if cells["policy"] != 'a "b", c' or cells["median_ms"] != "0.123457" or len(second) != len(head):
            wrong.append(f"rows: {cells}")
        if not set(record.PROVENANCE) <= set(head) or not cells["utc"] or cells["run_id"] != record.run_id():
            wrong.append(f"provenance: {cells}")
        try:
            rows.add(bench="adamw", speed=1)
            wrong.append("an unknown column was taken")
        except ValueError:
            pass
    return wrong


def test_commit(path):
    """Rows of peers have the commit that the benches' rows have; tests/build/test_build_info.c has its cases."""
    import tempfile
    wrong = []
    with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ):
        os.environ["STEPBENCH_COMMIT"] = "said"
        os.makedirs(f"{folder}/common/build")
        shutil.copy(f"{library.ROOT}/common/build/identity.sh", f"{folder}/common/build")
        if not re.fullmatch(r"said\+[0-9a-f]{12}", record.commit(folder)):
            wrong.append(f"STEPBENCH_COMMIT=said names the commit '{record.commit(folder)}'")
        if record.commit(f"{folder}/none"):
            wrong.append("a folder without sources has a commit")
        if path and library.is_of_tree(path, folder):
            wrong.append("a library is taken for one of an empty tree")
    if path and not library.is_of_tree(path):
        wrong.append(f"{path} is not taken for one of this tree's kernels")
    return wrong


def test_run_limited():
    """A launcher with a rank in a session of its own, as torch.distributed.run starts them."""
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        rank = f"{folder}/rank"
        launcher = f"setsid sleep 300 & echo $! >{rank}; trap 'kill $!; exit 1' TERM; wait"
        try:
            return [f"the launcher ended with {run_limited(['bash', '-c', launcher], 1)}"]
        except subprocess.TimeoutExpired:
            pass
        with open(rank) as file:
            pid = int(file.read())
        time.sleep(0.2)
        state = record.output_of("ps", "-o", "stat=", "-p", str(pid)).strip()
        if state and not state.startswith("Z"):
            os.kill(pid, 9)
            return ["a rank outlives its launcher"]
    return []


def test_ways_of_nccl_tests():
    """A process for each GPU or a thread, with registered buffers or without, and the setting of NVLink SHARP in words."""
    with unittest.mock.patch.object(nccl_tests, "program", lambda: "perf"), unittest.mock.patch.dict(os.environ, NCCL_NVLS_ENABLE="0"):
        said = nccl_tests.multicast()
        found = [" ".join(nccl_tests.command_of(case, 4, False)) for case in (("process", 0, "eager"), ("thread", 1, "graph"))]
    common = "-b 1K -e 1G -f 2 -g 1 -w 5 -n 50 -N 3"
    wanted = [f"mpirun --allow-run-as-root --bind-to none -np 4 perf -t 1 {common}", f"perf -t 4 {common} -R 1 -G 4"]
    ranks = {gpus: [way[0] for way in nccl_tests.ways_of(gpus)] for gpus in (2, 4, 8)}
    numbers = ranks == {2: [2] * 8, 4: [4] * 8 + [3] * 2, 8: [8] * 8 + [3, 3, 4, 4, 6, 6]}
    return [] if found == wanted and numbers and said == ", NCCL_NVLS_ENABLE=0" else [f"nccl-tests: {found}, {ranks}, {said}"]


def test_nccl_tests_that_fail():
    """A way that does not start, ends badly or hangs has a row that says so, what it started has ended, and the next one goes on."""
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/out", "w") as file:
            file.write(NCCL_TESTS_OUTPUT)
        hangs = ["bash", "-c", f"sleep 300 & echo $! >{folder}/rank; wait"]
        ways = iter([[f"{folder}/none"], ["bash", "-c", "echo bad; exit 2"], hangs, ["cat", f"{folder}/out"], *[["false"]] * 4])
        with unittest.mock.patch.object(nccl_tests, "command_of", lambda *_: next(ways)):
            nccl_tests.nccl_tests(record.Rows("nccl_tests", folder), True, ranks=2, timeout=1)
        found = [row["note"] or row["median_us"] for row in rows_of(folder, "nccl_tests")]
        with open(f"{folder}/rank") as file:
            state = record.output_of("ps", "-o", "stat=", "-p", file.read().strip())
    wanted = [f"{folder}/none: No such file or directory", "bash ended with 2: bad", "no end within 1 s", "10.44", "9.8", "4100.1", "4101.2",
              *["false ended with 1:"] * 4]
    wrong = [] if found == wanted else [f"nccl-tests that fail: {found}"]
    return wrong + ([] if not state or state.startswith("Z") else ["what nccl-tests started outlives it"])


def test_run_by_hand():
    """A run that the environment names is taken from ./run_all.sh alone, which keeps its lock open as file 9."""
    with unittest.mock.patch.dict(os.environ, STEPBENCH_RUN="run-of-another"):
        with unittest.mock.patch.object(record, "within_run_all", lambda: True):
            within = record.begin_run()
        by_hand = record.begin_run()
    return [] if within == "run-of-another" and by_hand not in ("", "run-of-another") else [f"run ids: {within}, {by_hand}"]


class FakeProfile:
    """Two kernels that overlap, and a third: 50 of 100 us are busy."""

    def start(self):
        pass

    def stop(self):
        pass

    def export_chrome_trace(self, path):
        kernels = [("kernel", 100, 30), ("gpu_memcpy", 120, 20), ("kernel", 190, 10), ("cpu_op", 0, 500), ("gpu_user_annotation", 100, 100)]
        with open(path, "w") as file:
            json.dump({"traceEvents": [{"cat": cat, "ts": ts, "dur": dur} for cat, ts, dur in kernels] + [{"ph": "M"}]}, file)


def test_load():
    """The busy share, what is measured where the profiler does not work, and that ranks take as many steps in either case."""
    wrong, steps = [], []

    def broken():
        raise RuntimeError("nobody may profile here")

    busy = load.gpu_busy(lambda: steps.append(1), lambda: None, 1000, "GPU-none", make=FakeProfile)
    if busy != {"gpu_busy_pct": 50.0, "gpu_busy_by": "profiler"} or len(steps) != 1 + load.PROFILED_STEPS:
        wrong.append(f"busy share by profiler: {busy} in {len(steps)} steps")
    steps.clear()
    with unittest.mock.patch.object(load, "by_driver", lambda *_: 97.0):
        busy = load.gpu_busy(lambda: steps.append(1), lambda: None, 1000, "GPU-none", make=broken)
    if busy != {"gpu_busy_pct": 97.0, "gpu_busy_by": "nvml"} or steps:
        wrong.append(f"busy share by NVML: {busy} after {len(steps)} steps")
    with unittest.mock.patch.object(load, "by_driver", lambda *_: math.nan):
        if load.gpu_busy(lambda: None, lambda: None, 1000, "GPU-none", make=broken):
            wrong.append("a busy share without a measurement")
        with_another = load.gpu_busy(lambda: steps.append(1), lambda: None, 1000, "GPU-none", make=FakeProfile, agree=lambda _: 1.0)
    if with_another or steps:
        wrong.append(f"another rank's profiler failed, and this one took {len(steps)} steps")
    return wrong


def test_cases():
    """The full loads come first, what each bench is asked for is what is beside it, and each list runs in its time."""
    full = [case for case in parallel_cases.CASES if case.full_load]
    wrong = [] if parallel_cases.CASES[:len(full)] == full else ["full loads do not come first"]
    wrong += [] if any(c.strategy == "ddp25" and c.mode == "fused-graph" for c in full) else ["no full load of DDP is one CUDA graph"]
    fsdp = {parallel_cases.CASES[i] for i in parallel_cases.chosen(["fsdp"], True)}
    wrong += [] if fsdp == {c for c in full if c.strategy.startswith("fsdp2")} else [f"full loads beside bench_fsdp: {fsdp}"]
    for name, most in (("model", steps.LIST_S), *parallel_cases.LIST_S.items()):
        cases = LISTS[name][0]
        wrong += [f"twice in a list: {case}" for case in cases if [c[:-1] for c in cases].count(case[:-1]) > 1]
        wrong += [f"its seconds are not known: {case}" for case in cases if not case.seconds > 0]
        took = sum(case.seconds for case in cases) + (0 if name in APART else START_S)
        wrong += [f"{name}: its list takes {took} s, and {most} are promised"] if took > most else []
        text = f"within {most} s"
        with open(f"{library.ROOT}/docs/peers.md") as page:
            wrong += [] if f"`{name}` {text}" in page.read() else [f"docs/peers.md does not say that {name} runs {text}"]
    student = record.chosen(steps.CASES, "xl 512 fused-graph tf32,bf16 eager")
    if [(c.mode, c.precision) for c in student] != [("fused-graph", "tf32"), ("eager", "bf16")]:
        wrong.append(f"--cases chooses {student}")
    float8 = record.chosen(steps.CASES, "xl 1024 fp8")
    if {c.precision for c in float8} != {"fp8-rowwise", *steps.TORCHAO} or {c[:2] for c in float8} != {("xl", 1024)}:
        wrong.append(f"--cases chooses {float8} for fp8")
    if {c.strategy for c in record.chosen(parallel_cases.CASES, "fsdp2")} != {"fsdp2"}:
        wrong.append("--cases takes fsdp2-keep for fsdp2")
    for beside, words, full_loads, wanted in (("transformer", "xl", False, ["model"]), ("transformer", "", False, ["adamw", "model"]),
                                              ("run", "fp32", False, ["run"]), ("fsdp", "", True, ["ddp"])):
        names = asked(list(PEERS), argparse.Namespace(beside=[beside], cases=words, full_loads=full_loads))
        wrong += [] if names == wanted else [f"beside {beside} and cases '{words}' run {names}"]
    names = {bench for *_, benches in PEERS.values() for bench in benches}
    wrong += [f"no bench is called {case.beside}" for case in parallel_cases.CASES if case.beside not in names]
    unknown = set(parallel_cases.columns(full[0], 2)) - set(record.header("ddp"))
    return wrong + [f"peer_ddp.csv has no column {name}" for name in unknown]


def test_flash_cases():
    """The plain cases come first, a kind is what the other columns say, and words choose among them."""
    wrong, cases = [], flash_cases.CASES
    kinds = [flash_cases.KINDS.index(case.kind) for case in cases]
    wrong += [] if kinds == sorted(kinds) and set(kinds) == set(range(4)) else [f"kinds of attention: {kinds}"]
    for case in (*cases, *flash_cases.SMALL):
        kind = "window" if case.window >= 0 else "documents" if case.documents else "deterministic" if case.deterministic else "plain"
        if kind != case.kind or (kind != "plain" and not (case.causal and case.dtype == "bf16")) or (case.documents and case.deterministic):
            wrong.append(f"attention: {case}")
    found = [flash_cases.columns(case) for case in cases]
    wrong += [] if len({tuple(row.values()) for row in found}) == len(found) else ["two cases of attention have the same row"]
    wrong += [f"peer_flash.csv has no column {name}" for name in set(found[0]) - set(record.header("flash"))]
    chosen = {word: record.chosen(cases, word) for word in ("window", "documents,deterministic", "plain 96")}
    if [{case.kind for case in part} for part in chosen.values()] != [{"window"}, {"documents", "deterministic"}, {"plain"}]:
        wrong.append(f"--cases chooses {chosen}")
    names = asked(list(PEERS), argparse.Namespace(beside=["flash"], cases="window", full_loads=False))
    return wrong + ([] if names == ["flash"] else [f"beside flash and cases 'window' run {names}"])


def rows_of(folder, name):
    with open(f"{folder}/peer_{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_limits():
    """A process that does not end, or ends badly, leaves a row for the case that it was at, and the next one goes on; a case that ends
    the process of others is tried alone."""
    import tempfile
    wrong = []
    ends = """import sys; sys.path.insert(0, sys.argv[1]); import os, parallel_cases, record
for place, n in enumerate(map(int, sys.argv[-1].split(","))):
    if n == 1 or n == 5 and place > 0: sys.exit(3)
    if n == 2: os.kill(os.getpid(), 14)
    record.Rows("ddp", sys.argv[2]).add(**parallel_cases.columns(parallel_cases.CASES[n], 2), step_ms=1)"""
    with tempfile.TemporaryDirectory() as folder, unittest.mock.patch(f"{__name__}.START_S", 0), \
            unittest.mock.patch(f"{__name__}.command_of", lambda *_: [sys.executable, "-c", ends, HERE, folder]), \
            unittest.mock.patch.object(parallel_cases, "chosen", lambda *_: [0, 5, 1, 3, 2]), \
            unittest.mock.patch.object(parallel_cases, "CASES", [case._replace(seconds=1) for case in parallel_cases.CASES]):
        with unittest.mock.patch.dict(LISTS, ddp=(parallel_cases.CASES, *parallel_cases.LISTS["ddp"][1:])):
            code = run_cases("ddp", argparse.Namespace(out=folder, small=False, timeout=60, cases="", beside="", full_loads=False))
        found = [(row["step_ms"], re.sub("[0-9]+ s", "N s", row["note"])) for row in rows_of(folder, "ddp")]
        if code != 1 or found != [("1", ""), ("1", ""), ("", "exit code 3"), ("1", ""), ("", "no end within N s")]:
            wrong.append(f"cases of which one ends badly and one hangs: {code}, {found}")
    return wrong


def test_pipelines():
    """Each case of pp.py that ends badly, or has no time left, has a row; all of them together are a failure, one is not."""
    import tempfile
    wrong = []
    for ends, well in ((lambda *_: 1, False), (lambda command, _: int(command[-1] == "1"), True)):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch(f"{__name__}.run_limited", ends):
            if run_cases("pp", argparse.Namespace(out=folder, small=False, timeout=1000, cases="")) != (not well):
                wrong.append(f"pipelines: all failed, or one did, and it says {not well}")
            if run_cases("tp", argparse.Namespace(out=folder, small=False, timeout=60, cases="")) != 1:
                wrong.append("layers shared by ranks: some cases had no time left, and all is well")
            rows = rows_of(folder, "tp")
            late = [case.mode for case in parallel_cases.TP if case.seconds > 60]
            if not late or [row["mode"] for row in rows if row["note"].startswith("not run: it takes about")] != late:
                wrong.append(f"layers shared by ranks: {rows}")
            rows = rows_of(folder, "pp")
            if len(rows) != (1 if well else 2) or rows[-1]["note"] != "exit code 1" or rows[-1]["impl"] != "zb-v" or rows[-1]["step_ms"]:
                wrong.append(f"pipelines: {rows}")
    return wrong


def self_test(options):
    print("rows of a folder:")
    wrong = test_rows() + test_commit(options.lib) + test_nccl_tests() + test_ways_of_nccl_tests() + test_nccl_tests_that_fail() + test_run_limited()
    wrong += test_run_by_hand() + test_load() + test_torchtitan() + test_cases() + test_flash_cases() + test_limits() + test_pipelines()
    wrong += [] if record.cudnn_version(91900) == "9.19.0" else ["cuDNN's version"]
    wrong += [f"peers: {name} has no columns" for name in PEERS if name not in record.COLUMNS]
    differences = library.layout_differences(os.environ.get("CC", "cc"))
    if differences is None:
        print("layout of kernels/kernels.h: skipped, there is no C compiler")
    else:
        print(f"layout of kernels/kernels.h: {len(differences)} differences")
        wrong += differences
    if options.lib:
        wrong += test_library(options.lib, 16, 16) + test_library(options.lib, 24, 16) + test_library(options.lib, 16, 32)
        print(f"attention of {options.lib} through ctypes: compared")
    else:
        print("attention through ctypes: skipped, there is no libstepbench.so")
    for text in wrong:
        print(f"self-test: {text}", file=sys.stderr)
    return EXIT_FAILED if wrong else EXIT_OK


def main():
    parser = argparse.ArgumentParser(prog="peers.py", description=__doc__)
    parser.add_argument("--out", default="", help="the folder of results: rows are appended to peer_<what>.csv")
    parser.add_argument("--only", default="", help=f"only these, of: {', '.join(PEERS)}")
    parser.add_argument("--beside", default="", help="only what stands beside these benches, such as fsdp,roofline")
    parser.add_argument("--full-loads", action="store_true", help="only steps of several GPUs that fill them, as ./run_all.sh --full-loads")
    parser.add_argument("--lib", default=library.default_path(), help="libstepbench.so; default: STEPBENCH_LIB, or the build's")
    parser.add_argument("--small", action="store_true", help="a few tiny cases of each, to try everything")
    parser.add_argument("--timeout", type=float, default=1500, help="seconds for each peer")
    parser.add_argument("--cases", default="", help="of the peers flash, model, ddp, tp, pp, torchtitan and checkpoint only the cases that have all of "
                        "these words, or what begins so: 'xl 1024 fp8,fsdp2'; --list shows them, steps with about the seconds that each takes")
    parser.add_argument("--list", action="store_true", help="say what can run here, and exit")
    parser.add_argument("--self-test", action="store_true", help="check what needs no GPU and no PyTorch, and exit")
    parser.add_argument("--one", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--case", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name] or list(PEERS)
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        parser.error(f"--only: there is no peer '{unknown[0]}'; there are: {', '.join(PEERS)}")
    options.beside = [bench.removeprefix("bench_") for bench in options.beside.split(",") if bench]
    names = asked(names, options)
    if options.lib and not os.path.exists(options.lib):
        parser.error(f"--lib: there is no {options.lib}")
    if options.self_test:
        return self_test(options)
    if options.list:
        for name in names:
            print(f"{name:12} {missing(name) or 'can run'}: {PEERS[name][0]}")
            for case in record.chosen(LISTED[name][options.small], options.cases) if name in LISTED else ():
                print(f"    {' '.join(str(value) for value in case)}")
        return EXIT_OK
    if not options.out:
        parser.error("--out is needed: the folder of results")
    if options.one:
        run_one(options.one, options)
        return EXIT_OK
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # what runs is ended, too
    return run_all(names, options)


if __name__ == "__main__":
    sys.exit(main())
