# SPDX-License-Identifier: MIT
"""Rows of peers: their columns, where they come from, and the CSV files that keep them."""
import csv
import datetime
import io
import os
import subprocess
import sys

import library

PROVENANCE = ("torch", "cuda", "cudnn", "nccl", "driver", "gpu", "gpu_uuid", "utc", "commit", "run_id")

# What is measured, by peer: the columns of a case, then those of its result. A report reads a case up to the first
# column with a unit in its name, so every result begins with one.
COLUMNS = {
    "gemm": (("bench", "dtype", "size", "mode", "policy"), ("median_ms", "p10_ms", "p90_ms", "tflops", "gb_s")),
    "adamw": (("bench", "impl", "params", "mode", "policy"), ("median_ms", "p10_ms", "p90_ms", "gb_s")),
    "fp8": (("bench", "product", "shape", "mode", "policy"), ("median_ms", "p10_ms", "p90_ms", "tflops", "err_rel", "note")),
    "flash": (("bench", "impl", "dtype", "batch", "heads", "heads_kv", "seq", "head_dim", "head_dim_v", "causal", "window", "documents", "lengths",
               "deterministic", "layout", "mode", "policy"),
              ("fwd_ms", "bwd_ms", "fwd_tflops", "bwd_tflops", "fwd_ratio", "fwd_ratio_lo", "fwd_ratio_hi", "bwd_ratio",
               "bwd_ratio_lo", "bwd_ratio_hi", "reference", "fwd_diff", "bwd_diff", "note")),
    "model": (("bench", "size", "seq", "batch", "precision", "attn", "mode", "optimizer", "policy"),
              ("step_ms", "step_mean_ms", "step_p10_ms", "step_p90_ms", "fwd_ms", "bwd_ms", "opt_ms", "tokens_per_s", "peak_gib", "params", "loss_first", "loss_third", "loss", "mfu_pct",
               "gpu_busy_pct", "gpu_busy_by", "sm_mhz", "attn_kernel", "planned", "took_s", "note")),
    "ddp": (("bench", "strategy", "ranks", "size", "seq", "batch_per_rank", "precision", "attn", "mode", "timing", "policy", "bucket_mb"),
            ("step_ms", "step_mean_ms", "step_p10_ms", "step_p90_ms", "fwd_ms", "bwd_ms", "comm_exposed_ms", "opt_ms", "mem_init_gib", "mem_before_step_gib",
             "mem_after_step_gib", "peak_gib", "loss_first", "loss_third", "loss", "mfu_pct", "gpu_busy_pct", "gpu_busy_by", "planned",
             "took_s", "note")),
    "checkpoint": (("bench", "way", "ranks", "size", "seq", "batch_per_rank", "precision", "fs", "policy"),
                   ("stall_ms", "stall_min_ms", "stall_max_ms", "stall_first_ms", "step_ms", "durable_ms", "durable_gb_s", "state_bytes", "note")),
    "tp": (("bench", "ranks", "size", "seq", "batch", "precision", "attn", "mode", "timing", "policy"),
           ("step_ms", "step_mean_ms", "step_p10_ms", "step_p90_ms", "tokens_per_s", "peak_gib", "loss", "mfu_pct", "gpu_busy_pct", "gpu_busy_by", "note")),
    "torchtitan": (("bench", "ranks", "size", "seq", "batch_per_rank", "precision", "reduce", "checkpointing", "mode", "policy"),
                   ("step_ms", "tokens_per_s", "mfu_pct", "mfu_full_pct", "peak_gib", "loss_first", "loss_last", "took_s", "note")),
    "allreduce": (("bench", "backend", "ranks", "bytes", "mode", "policy"), ("median_ms", "least_ms", "most_ms", "algbw_gb_s", "busbw_gb_s")),
    "cp": (("bench", "impl", "ranks", "dtype", "batch", "heads", "heads_kv", "seq", "head_dim", "causal", "mode", "policy"),
           ("fwd_ms", "bwd_ms", "both_p10_ms", "both_p90_ms", "one_fwd_ms", "one_bwd_ms", "fwd_diff", "bwd_diff", "note")),
    "pp": (("bench", "impl", "ranks", "size", "seq", "batch", "micro_batches", "precision", "attn", "mode", "policy"),
           ("step_ms", "step_mean_ms", "step_p10_ms", "step_p90_ms", "peak_gib_first", "peak_gib_last", "loss", "loss_diff",
            "mfu_pct", "gpu_busy_pct", "gpu_busy_by", "note")),
    "run": (("bench", "size", "seq", "batch", "precision", "steps", "vocab", "d_ff", "mode", "policy"),
            ("step_ms", "item_ms", "eager_ms", "eager_item_ms", "diff_rel", "diff_step", "allow_rel", "diff_last", "allow_last", "spread_rel",
             "loss_last", "loss_last_ours", "note")),
    "nccl_tests": (("bench", "tool", "ranks", "bytes", "mode", "in_place", "policy"), ("median_us", "least_us", "most_us", "algbw_gb_s", "busbw_gb_s", "wrong", "note")),
}


def header(what):
    case, result = COLUMNS[what]
    return (*case, *result, *PROVENANCE)


def utc_now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def output_of(*command):
    """What a command prints, or nothing if it is absent or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def cell_of(text):
    """Its first line, with the characters that a report takes from a stranger's file."""
    return text.strip().split("\n")[0][:160].translate(str.maketrans({"<": "(", ">": ")"}))


def reason_of(error):
    """An exception, for a cell."""
    return f"{type(error).__name__}: {cell_of(str(error))}"


def chosen(cases, words):
    """Those that have all the words of a part: of 'xl 512 eager,tuned', eager steps of xl at 512, and all that are tuned. A word that
    no case has stands for all that begin with it, so that fsdp2 is not fsdp2-keep, and fp8 is each way of float8."""
    asked = [part.split() for part in words.split(",") if part.strip()]
    texts = [list(map(str, case)) for case in cases]
    whole = {text for case in texts for text in case}

    def has(case, word):
        return word in case if word in whole else any(text.startswith(word) for text in case)

    return [case for case, text in zip(cases, texts) if not asked or any(all(has(text, word) for word in part) for part in asked)]


def commit(root=library.ROOT):
    """As the benches' rows have it."""
    return output_of("sh", os.path.join(root, "common", "build", "identity.sh")).split(" ")[0]


def within_run_all():
    """./run_all.sh keeps its lock open as file 9 for itself and what it starts."""
    try:
        return os.path.samestat(os.fstat(9), os.stat(os.path.join(library.ROOT, "build", ".run_all.lock")))
    except OSError:
        return False


def begin_run():
    """Only what ./run_all.sh starts is part of its run: by hand, a name in the environment is left out, and peers have their own."""
    if not within_run_all():
        os.environ.pop("STEPBENCH_RUN", None)
    return run_id()


def run_id():
    """The campaign's, so that rows of a peer and of a bench say that they belong together."""
    if not os.environ.get("STEPBENCH_RUN"):
        os.environ["STEPBENCH_RUN"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ") + f"-{os.getpid()}"
    return os.environ["STEPBENCH_RUN"]


def cudnn_version(number):
    """9.19.0 for 91900; 8.9.2 for 8902."""
    if not number:
        return ""
    major, rest = divmod(number, 10000) if number >= 90000 else divmod(number, 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def gpu_of_driver():
    """driver, name and UUID of the first visible GPU, where PyTorch is not asked."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    choice = ("-i", visible) if visible else ()
    text = output_of("nvidia-smi", *choice, "--query-gpu=driver_version,name,uuid", "--format=csv,noheader")
    cells = [cell.strip() for cell in text.split("\n")[0].split(",")]
    return cells if len(cells) == 3 else ["", "", ""]


def provenance():
    found = dict.fromkeys(PROVENANCE, "")
    found["driver"], found["gpu"], found["gpu_uuid"] = gpu_of_driver()
    found["commit"], found["run_id"] = commit(), run_id()
    torch = sys.modules.get("torch")
    if torch:
        found["torch"], found["cuda"] = torch.__version__, torch.version.cuda or ""
        if torch.cuda.is_available():
            facts = torch.cuda.get_device_properties(torch.cuda.current_device())
            uuid = str(getattr(facts, "uuid", "") or found["gpu_uuid"])
            found["gpu"], found["gpu_uuid"] = facts.name, uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
            found["cudnn"] = cudnn_version(torch.backends.cudnn.version())
            found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def cell_text(value):
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class Rows:
    """Appends rows of one kind to peer_<what>.csv of a folder, a row per write, and prints them."""

    def __init__(self, what, folder):
        self.what, self.columns, self.facts = what, header(what), provenance()
        self.path = os.path.join(folder, f"peer_{what}.csv") if folder else None
        if self.path:
            os.makedirs(folder, exist_ok=True)
            self.move_aside_if_other()

    def move_aside_if_other(self):
        """As the benches do: a file with other columns is kept under another name."""
        if not os.path.exists(self.path):
            return
        with open(self.path, newline="") as file:
            if tuple(next(csv.reader(file), ())) == self.columns:
                return
        stem, number = self.path[:-len(".csv")], 1
        while os.path.exists(f"{stem}.{number}.csv"):
            number += 1
        os.rename(self.path, f"{stem}.{number}.csv")
        print(f"{self.path} had other columns and is now {stem}.{number}.csv")

    def add(self, **cells):
        unknown = set(cells) - set(self.columns)
        if unknown:
            raise ValueError(f"peer_{self.what}.csv has no column {', '.join(sorted(unknown))}")
        row = {**self.facts, "utc": utc_now(), **cells}
        case, result = COLUMNS[self.what]
        shown = [f"{name} {cell_text(row[name])}" for name in (*case, *result) if name != "policy" and row.get(name, "") != ""]
        print("  " + ", ".join(shown), flush=True)
        if self.path:
            self.write([cell_text(row.get(name, "")) for name in self.columns])

    def write(self, cells):
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not os.path.exists(self.path):
            writer.writerow(self.columns)
        writer.writerow(cells)
        with open(self.path, "a") as file:
            file.write(text.getvalue())
