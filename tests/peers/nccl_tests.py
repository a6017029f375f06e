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


def nccl_tests(rows, small, ranks=None, timeout=300):
    gpus = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout.count("GPU ")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    ranks = ranks or (len(visible.split(",")) if visible else gpus)
    for mode in ("eager", "graph"):
        command = [program(), "-b", "1K", "-e", "1M" if small else "1G", "-f", "2", "-t", str(ranks), "-g", "1", "-w", "5", "-n", "20" if small else "50"]
        command += ["-G", "20"] if mode == "graph" else []
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        found, tool, library = parse(done.stdout)
        if done.returncode or not found:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
        rows.facts["nccl"] = library or rows.facts["nccl"]
        for size, in_place, us, algorithm, bus, wrong in found:
            rows.add(bench="nccl_tests", tool=f"nccl-tests {tool}".strip(), ranks=ranks, bytes=size, mode=mode, in_place=in_place,
                     policy="one process, a thread for each rank, fp32, sum", median_us=us, algbw_gb_s=algorithm, busbw_gb_s=bus, wrong=wrong)
