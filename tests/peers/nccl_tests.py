# SPDX-License-Identifier: MIT
"""nccl-tests' all_reduce_perf from the folder NCCL_TESTS: the peer of bench_allreduce, called and from CUDA graphs."""
import contextlib
import os
import re
import signal
import subprocess

import record

CASE_S = 40  # a case takes some 10 s
CYCLES = 3  # all sizes so often, to see how far times are apart


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


def median_of(found):
    """Of each size, in place or not: the cycle with the median time, and the least and the largest time of all cycles."""
    cycles = {}
    for row in found:
        cycles.setdefault(row[:2], []).append(row)
    for rows in cycles.values():
        rows.sort(key=lambda row: row[2])
        yield *rows[len(rows) // 2][:5], next((row[5] for row in rows if row[5] != "0"), "0"), rows[0][2], rows[-1][2]


def nccl_version(number):
    """2.28.3 for 22803."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def ranks_of(text):
    """How many ranks took part: without MPI, each process of mpirun is a job of its own."""
    return len(set(re.findall(r"#\s+Rank\s+(\d+)", text)))


# How ranks are started, with registered buffers or without, and how calls are launched.
CASES = [(start, registered, mode) for mode in ("graph", "eager") for registered in (0, 1) for start in ("process", "thread")]
STARTS = {"process": "a process for each rank", "thread": "one process, a thread for each rank"}


def ways_of(gpus):
    """Every case on all GPUs; on as few as bench_allreduce takes of them, a process for each rank with buffers as they are."""
    fewer = [(ranks, case) for ranks in (3, 4, 6) if ranks < gpus for case in CASES if case[:2] == ("process", 0)]
    return [(gpus, case) for case in CASES] + fewer


def command_of(case, ranks, small):
    """Of sizes in steps of two. 200 calls of each, from a graph 50 times 4, so that starting one is less than 1 % of 1 KiB."""
    start, registered, mode = case
    each = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-np", str(ranks), program(), "-t", "1"] if start == "process" \
        else [program(), "-t", str(ranks)]
    return [*each, "-b", "1K", "-e", "1M" if small else "1G", "-f", "2", "-g", "1", "-w", "5", "-n", "50", "-N", str(CYCLES),
            *(["-R", "1"] if registered else []), *(["-G", "4"] if mode == "graph" else [])]


def multicast():
    """What the environment says of NVLink SHARP, which adds up in the switch."""
    setting = os.environ.get("NCCL_NVLS_ENABLE")
    return f", NCCL_NVLS_ENABLE={setting}" if setting else ""


def run(case, ranks, small, timeout):
    """Rows of one case; RuntimeError with the reason where it does not run. What it started ends with it."""
    command = command_of(case, ranks, small)
    try:
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    except OSError as error:
        raise RuntimeError(f"{command[0]}: {error.strerror}") from error
    try:
        out, err = job.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"no end within {timeout} s") from error
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL) if job.poll() is None else ():
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(job.pid, number)
                job.wait(5)
    found, tool, library = parse(out)
    if job.returncode or not found:
        raise RuntimeError(f"{os.path.basename(command[0])} ended with {job.returncode}: {' '.join((err or out).split())[-120:]}")
    if ranks_of(out) not in (0, ranks):
        raise RuntimeError(f"it ran as {ranks} jobs of one rank: all_reduce_perf was built without MPI=1")
    return found, tool, library


def nccl_tests(rows, small, ranks=None, timeout=CASE_S):
    gpus = record.output_of("nvidia-smi", "-L").count("GPU ")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    ran, ways = 0, ways_of(ranks or (len(visible.split(",")) if visible else gpus))
    for ranks, case in ways:
        start, registered, mode = case
        cells = {"bench": "nccl_tests", "ranks": ranks, "mode": mode,
                 "policy": f"{STARTS[start]}, fp32, sum{', registered buffers' if registered else ''}{multicast()}"}
        try:
            found, tool, library = run(case, ranks, small, timeout)
        except RuntimeError as error:
            rows.add(**cells, note=record.reason_of(error).removeprefix("RuntimeError: "))
            continue
        ran += 1
        rows.facts["nccl"] = library or rows.facts["nccl"]
        for size, in_place, us, algorithm, bus, wrong, least, most in median_of(found):
            rows.add(**cells, tool=f"nccl-tests {tool}".strip(), bytes=size, in_place=in_place, median_us=us, least_us=least, most_us=most, algbw_gb_s=algorithm, busbw_gb_s=bus,
                     wrong=wrong)
    print(f"  {ran} of {len(ways)} ways ran")
    if not ran:
        raise RuntimeError("no way to start nccl-tests ran")
