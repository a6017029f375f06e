# SPDX-License-Identifier: MIT
"""Training steps of torchtitan: a process for each GPU, whole as its users start it, but with random tokens and without a network.

usage: titan.py RANKS FOLDER [--small] [--case NUMBERS]"""
import contextlib
import glob
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import namedtuple

import load
import parallel_cases
import record

HERE = os.path.dirname(os.path.abspath(__file__))
ENTRY = ("-m", "torchtitan.train")
LAST = 8  # steps that count, behind those that compile
END_S = 45  # in which a launcher that is told to end has ended its ranks
FLAVORS = {"llama3-8b": "8B"}  # of torchtitan; others have its name here, too
DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
FLOAT8 = ("--model.converters", "quantize.linear.float8", "--quantize.linear.float8.enable_fsdp_float8_all_gather",
          "--quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp", "--quantize.linear.float8.filter_fqns", "output")
Step = namedtuple("Step", "number loss peak_gib tokens_per_s mfu_pct")
LINE = re.compile(r"step:\s*(\d+)\s+loss:\s*(\S+)\s+grad_norm:\s*\S+\s+memory:\s*([\d.]+)GiB\(\S+%\)\s+tps:\s*([\d,]+)\s+tflops:\s*\S+\s+mfu:\s*(\S+)%")


def command_of(case, ranks, folder):
    """Optimizer, rates and clipping are those of its llama3_8b.toml."""
    return [sys.executable, f"{HERE}/launch.py", str(ranks), "--local-addr=127.0.0.1", "--redirects=3", f"--log-dir={folder}/log", *ENTRY,
            "--job.dump_folder", f"{folder}/dump", "--debug.seed", "1",
            "--experimental.custom_import", "titan_job", "--job.custom_config_module", "titan_job",
            "--model.name", "llama3", "--model.flavor", FLAVORS.get(case.size, case.size),
            "--training.seq_len", str(case.seq), "--training.local_batch_size", str(case.batch), "--training.steps", str(parallel_cases.TITAN_STEPS),
            "--training.max_norm", "1.0", "--training.dtype", "float32", "--training.mixed_precision_param", "bfloat16",
            "--training.mixed_precision_reduce", DTYPES[case.reduce], "--parallelism.data_parallel_shard_degree", "-1",
            "--optimizer.name", "AdamW", "--optimizer.lr", "3e-4", "--optimizer.eps", "1e-8", "--optimizer.implementation", "fused",
            "--lr_scheduler.warmup_steps", "2", "--activation_checkpoint.mode", "selective", "--activation_checkpoint.selective_ac_option", "op",
            "--compile.enable", "--compile.components", "model,loss", "--metrics.log_freq", "1", "--metrics.disable_color_printing",
            *(FLOAT8 if case.precision in parallel_cases.TORCHAO else ())]


def environment(folder):
    """As it is, with titan_job among the modules; allocations are plain, and nothing is looked for in a network."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")}
    return {**kept, "PYTHONPATH": ":".join(filter(None, (folder, kept.get("PYTHONPATH")))), "HF_HUB_OFFLINE": "1"}


def steps_of(log):
    """What a rank's log says of each step: a loss of all ranks, and tokens per second of one GPU since the step before."""
    return [Step(int(number), float(loss), float(gib), int(tps.replace(",", "")), float(mfu)) for number, loss, gib, tps, mfu in LINE.findall(log)]


def error_of(log):
    """The last line that names an exception, or nothing."""
    found = re.findall(r"^(?:\[rank\d+\]:\s*)?([\w.]*(?:Error|Exception)\b.*)", log, re.MULTILINE)
    return found[-1] if found else ""


def results(case, log, gpu, reason="", planned=parallel_cases.TITAN_STEPS):
    """The cells of a case by the log of rank 0. `reason` says how it ended where it failed."""
    found, cells = steps_of(log), {}
    if len(found) < planned or reason:
        cells["note"] = f"{len(found)} of {planned} steps" + (f": {reason}" if reason else "")
    elif not math.isfinite(found[-1].loss):
        cells["note"] = "the loss is not a number"
    if len(found) <= LAST:
        return cells
    middle = lambda name: statistics.median(getattr(step, name) for step in found[-LAST:])
    step_ms = 1e3 * case.batch * case.seq / middle("tokens_per_s")
    if case.size in load.SIZES:
        cells["mfu_pct"] = load.mfu_pct(gpu, "bf16", case.size, case.seq, case.batch, step_ms)
    return {**cells, "step_ms": step_ms, "tokens_per_s": middle("tokens_per_s"), "mfu_full_pct": middle("mfu_pct"),
            "peak_gib": max(step.peak_gib for step in found), "loss_first": found[0].loss, "loss_last": found[-1].loss}


def log_of(folder, rank):
    """Both of its streams."""
    text = ""
    for path in sorted(glob.glob(f"{folder}/log/*/attempt_*/{rank}/std*.log")):
        with open(path, errors="replace") as file:
            text += file.read()
    return text


def run(case, ranks):
    """The log of rank 0, and how the job ended where it failed. Its ranks end with it, also where this program is told to end."""
    with tempfile.TemporaryDirectory(prefix="titan") as folder:
        os.symlink(f"{HERE}/titan_job.py", f"{folder}/titan_job.py")  # alone: other modules here have names that others have
        job = subprocess.Popen(command_of(case, ranks, folder), env=environment(folder))
        try:
            code = job.wait()
            ended = f"exit code {code}" if code else ""
        except (KeyboardInterrupt, SystemExit):
            ended = "told to end"
            job.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.wait(END_S)
        finally:
            job.kill()
            job.wait()
        logs = [log_of(folder, rank) for rank in range(ranks)]
    if not ended:
        return logs[0], ""
    print("\n".join(logs[0].splitlines()[-12:]), file=sys.stderr)
    errors = [text for text in map(error_of, logs) if text]
    return logs[0], record.cell_of((errors or [ended])[0])


def main():
    ranks, folder = int(sys.argv[1]), sys.argv[2]
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    for case in parallel_cases.cases_of("torchtitan", sys.argv):
        started = time.monotonic()
        log, reason = run(case, ranks)
        import torch  # noqa: F401: after the steps, since what the rows ask it for takes memory of a GPU
        rows = record.Rows("torchtitan", folder)
        rows.add(**parallel_cases.titan_columns(case, ranks), **results(case, log, rows.facts["gpu"], reason), took_s=time.monotonic() - started)
        if reason:
            sys.exit(1)


if __name__ == "__main__":
    main()
