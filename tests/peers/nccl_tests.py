# SPDX-License-Identifier: MIT
"""nccl-tests' all_reduce_perf from the folder NCCL_TESTS: the peer of bench_allreduce, called and from CUDA graphs."""
import os
import re
import subprocess


def program():
    folder = os.environ.get("NCCL_TESTS", "")
    for path in (f"{folder}/build/all_reduce_perf", f"{folder}/all_reduce_perf"):
        if folder and os.access(path, os.X_OK):
            return path
    return None


def parse(text):
    """Rows of (bytes, in_place, us, algbw, busbw, wrong), the program's version and NCCL's.

    A line has size, count, type, operation and root, then time, two bandwidths and errors out of place and in place."""
    found = []
    for line in text.splitlines():
        cells = line.split()
        if len(cells) >= 13 and cells[0].isdigit() and cells[1].isdigit():
            for in_place, part in ((0, cells[5:9]), (1, cells[9:13])):
                found.append((int(cells[0]), in_place, float(part[0]), float(part[1]), float(part[2]), part[3]))
    tool = re.search(r"nccl-tests version (\S+)", text)
    library = re.search(r"nccl-library=(\d+)", text)
    return found, tool.group(1) if tool else "", nccl_version(int(library.group(1))) if library else ""


def nccl_version(number):
    """2.28.3 for 22803."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def ranks_of(text):
    """How many ranks took part: without MPI, each process of mpirun is a job of its own."""
    return len(set(re.findall(r"#\s+Rank\s+(\d+)", text)))


# How ranks are started, with registered buffers or without, and how calls are launched.
CASES = [(start, registered, mode) for mode in ("graph", "eager") for registered in (0, 1) for start in ("process", "thread")]
STARTS = {"process": "a process for each rank", "thread": "one process, a thread for each rank"}


def command_of(case, ranks, small):
    start, registered, mode = case
    each = ["mpirun", "--allow-run-as-root", "-np", str(ranks), program(), "-t", "1"] if start == "process" else [program(), "-t", str(ranks)]
    return [*each, "-b", "1K", "-e", "1M" if small else "1G", "-f", "2", "-g", "1", "-w", "5", "-n", "20" if small else "50",
            *(["-R", "1"] if registered else []), *(["-G", "20"] if mode == "graph" else [])]


def multicast():
    """What the environment says of NVLink SHARP, which adds up in the switch."""
    setting = os.environ.get("NCCL_NVLS_ENABLE")
    return f", NCCL_NVLS_ENABLE={setting}" if setting else ""


def run(case, ranks, small, timeout):
    """Rows of one case; RuntimeError with the reason where it does not run."""
    command = command_of(case, ranks, small)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"{command[0]}: {error}") from error
    found, tool, library = parse(done.stdout)
    if done.returncode or not found:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
    if ranks_of(done.stdout) not in (0, ranks):
        raise RuntimeError(f"it ran as {ranks} jobs of one rank: all_reduce_perf was built without MPI=1")
    return found, tool, library


def nccl_tests(rows, small, ranks=None, timeout=120):
    gpus = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout.count("GPU ")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    ranks, ran = ranks or (len(visible.split(",")) if visible else gpus), 0
    for case in CASES:
        start, registered, mode = case
        try:
            found, tool, library = run(case, ranks, small, timeout)
        except RuntimeError as error:
            print(f"  {STARTS[start]}{', registered buffers' if registered else ''}, {mode}: not run, {error}")
            continue
        ran += 1
        rows.facts["nccl"] = library or rows.facts["nccl"]
        for size, in_place, us, algorithm, bus, wrong in found:
            rows.add(bench="nccl_tests", tool=f"nccl-tests {tool}".strip(), ranks=ranks, bytes=size, mode=mode, in_place=in_place,
                     policy=f"{STARTS[start]}, fp32, sum{', registered buffers' if registered else ''}{multicast()}", median_us=us, algbw_gb_s=algorithm,
                     busbw_gb_s=bus, wrong=wrong)
    print(f"  {ran} of {len(CASES)} ways ran")
    if not ran:
        raise RuntimeError("no way to start nccl-tests ran")
