# SPDX-License-Identifier: MIT
"""How much work a step is, how long it may take, and how much of its time the GPU was busy. A peer whose GPU waits for its host measures
the host: the report forms no ratio below 80 % (plots/report/sections/peers.sql)."""
import json
import math
import os
import re
import signal
import statistics
import subprocess
import tempfile

VOCAB, VOCABS = 10000, {"8b": 151936, "llama3-8b": 128256}  # of every size but these
HEADS_KV = {"llama3-8b": 8}  # of others as many as heads
SIZES = {  # d_model, d_ff, layers, heads: as in common/model/config.c
    "tiny": (64, 192, 2, 4), "small": (768, 3072, 12, 12), "medium": (1024, 4096, 24, 16), "large": (1280, 5120, 36, 20),
    "xl": (1600, 6400, 48, 25), "2.7b": (2560, 10240, 32, 32),
    "8b": (4096, 11008, 34, 32), "llama3-8b": (4096, 14336, 32, 32),
}
# TFLOP/s by the data sheet in 16 bits, tf32 and fp32; the first that a GPU's name begins with: as in common/formulas/model.c
PEAKS = (("NVIDIA H100 PCIe", 756, 378, 51.2), ("NVIDIA H100 80GB HBM3", 989.4, 494.7, 66.9), ("NVIDIA H200 NVL", math.nan, math.nan, math.nan),
         ("NVIDIA H200", 989.4, 494.7, 66.9), ("NVIDIA A100", 312, 156, 19.5))
PROFILED_STEPS = 3


def vocab_of(size):
    return VOCABS.get(size, VOCAB)


def step_flops(size, seq, batch):
    """Three times the forward's, of which attention counts the causal half: transformer_step_flops of common/formulas."""
    width, inner, layers, heads = SIZES[size]
    tokens, shared = batch * seq, width * HEADS_KV.get(size, heads) // heads
    weights = layers * (2 * width * (width + shared) + 3 * width * inner) + vocab_of(size) * width
    return 3 * (2 * weights * tokens + 2 * layers * seq * width * tokens)


def peak_tflops(gpu, precision):
    """By the dtype of the products; NaN where the data sheet is not known."""
    column = {"tf32": 2, "fp32": 3}.get(precision, 1)
    return next((peak[column] for peak in PEAKS if gpu.startswith(peak[0])), math.nan)


def mfu_pct(gpu, precision, size, seq, batch, step_ms):
    """Of one GPU with its own batch, in the causal convention."""
    return 100 * step_flops(size, seq, batch) / (step_ms * 1e9 * peak_tflops(gpu, precision))


def spread(samples):
    """The columns of a step's times: half of the samples lie below the median, a tenth below and above the others."""
    ordered, last = sorted(samples), len(samples) - 1
    at = lambda share: ordered[round(share * last)]
    return {"step_ms": statistics.median(samples), "step_mean_ms": statistics.fmean(samples), "step_p10_ms": at(0.1), "step_p90_ms": at(0.9)}


# ---- the share of busy time ----

def busy_share(intervals):
    """Of the time from the first begin to the last end, in percent: that in which at least one of (begin, end) runs."""
    busy, reached = 0.0, -math.inf
    for begin, end in sorted(intervals):
        busy += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return 100 * busy / (reached - min(begin for begin, _ in intervals))


def intervals_of(trace):
    """Kernels and copies of a Chrome trace, in microseconds."""
    work = ("kernel", "gpu_memcpy", "gpu_memset")
    return [(event["ts"], event["ts"] + event["dur"]) for event in trace["traceEvents"] if event.get("cat") in work]


def attention_kernel(step, wait):
    """The names of the kernels that made attention in one step, those that took longest first; empty where nobody may profile."""
    profile = started(profiler)
    if not profile:
        return ""
    step()
    wait()
    try:
        profile.stop()
        times = {}
        for event in profile.key_averages():
            if re.search("flash|fmha|sdpa|attention", event.key, re.IGNORECASE):
                name = re.sub(r"^void |<.*|\(.*", "", event.key)[:60]
                times[name] = times.get(name, 0) + event.self_device_time_total
        return " ".join(sorted((name for name in times if times[name] > 0), key=lambda name: -times[name])[:3])
    except Exception as error:
        print(f"  the profile can't be read: {type(error).__name__}: {str(error).strip()[:120]}")
        return ""


def profiler():
    from torch.profiler import ProfilerActivity, profile
    return profile(activities=[ProfilerActivity.CUDA])


def started(make):
    """What `make` gives, started; None after a line where that fails."""
    try:
        profile = make()
        profile.start()
        return profile
    except Exception as error:  # a machine where nobody may profile is no end
        print(f"  the profiler does not start: {type(error).__name__}: {str(error).strip()[:120]}")
        return None


def read(profile):
    """Its share; NaN where it has no kernels or can't be read."""
    try:
        profile.stop()
        with tempfile.TemporaryDirectory() as folder:
            profile.export_chrome_trace(f"{folder}/trace.json")
            with open(f"{folder}/trace.json") as file:
                return busy_share(intervals_of(json.load(file)))
    except Exception as error:
        print(f"  the profile can't be read: {type(error).__name__}: {str(error).strip()[:120]}")
        return math.nan


def by_profiler(step, wait, agree, make):
    """Of a few steps. Ranks must take the same number of steps, so they agree before each part. The first start of a process takes
    long, so it profiles a step that does not count."""
    share = math.nan
    for steps in (1, PROFILED_STEPS):
        profile = started(make)
        if agree(0.0 if profile else 1.0):
            if profile:
                read(profile)
            return math.nan
        for _ in range(steps):
            step()
        wait()
        share = read(profile)
    return math.nan if agree(1.0 if math.isnan(share) else 0.0) else share


def asked_amid(step, wait, step_ms, gpu_uuid, what, seconds):
    """A number of the driver's, asked for in the middle of so many seconds of steps; NaN where it has none."""
    steps = max(4, math.ceil(1e3 * seconds / step_ms))
    asked = None
    for turn in range(steps):
        if turn == steps // 2:
            try:
                asked = subprocess.Popen(["nvidia-smi", "-i", gpu_uuid, f"--query-gpu={what}", "--format=csv,noheader,nounits"],
                                         stdout=subprocess.PIPE, text=True)
            except OSError:
                pass
        step()
    wait()
    try:
        return float(asked.communicate(timeout=20)[0])
    except (AttributeError, ValueError, subprocess.SubprocessError):
        return math.nan


def by_driver(step, wait, step_ms, gpu_uuid):
    """The driver's utilisation: the share of its last sample in which a kernel ran."""
    return asked_amid(step, wait, step_ms, gpu_uuid, "utilization.gpu", 2)


def gpu_busy(step, wait, step_ms, gpu_uuid, agree=lambda value: value, make=profiler):
    """The columns gpu_busy_pct and gpu_busy_by, of the rank that is least busy; empty where neither way works. `step` launches one,
    `wait` waits for what was launched, `agree` is the largest of all ranks' values."""
    for name, measured in (("profiler", lambda: by_profiler(step, wait, agree, make)), ("nvml", lambda: by_driver(step, wait, step_ms, gpu_uuid))):
        share = measured()
        if not agree(1.0 if math.isnan(share) else 0.0):
            return {"gpu_busy_pct": -agree(-share), "gpu_busy_by": name}
    return {}


def gpu_busy_or_note(*arguments, **named):
    """gpu_busy, or the column note where neither way works."""
    return gpu_busy(*arguments, **named) or {"note": "the share of busy time could not be measured"}


# ---- cores, and what ends a case ----

def limit_s(seconds):
    """Of a case that takes about so long."""
    return 2 * seconds + 60


def limited(seconds):
    """A case begins that takes about so long; this process ends where it exceeds its limit. None: it has ended."""
    signal.alarm(0 if seconds is None else limit_s(seconds))


def pin(rank, ranks):
    """Each rank to an equal part of the cores, so that none takes another's; returns them."""
    cores = sorted(os.sched_getaffinity(0))
    mine = cores[rank * len(cores) // ranks:(rank + 1) * len(cores) // ranks] or cores
    os.sched_setaffinity(0, mine)
    return mine
