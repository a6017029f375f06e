#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The same training run in PyTorch: model, initial values, tokens, order, schedule and clipping are those that `./bench_run --dump
FOLDER` has written. Compares its losses with the log of the bench, and writes them beside it for the figure.

  ./bench_run --device cpu --size tiny --precision fp32 --variant log --steps 200 --dump dump
  tests/peers/run.py dump --log results/<machine>/run/log-ddp-1-tiny-32-fp32.csv
  tests/peers/run.py --rows results/<machine>      starts bench_run itself, and leaves a row for each of CASES: the peer `run`

fp32 is to agree to 1e-4 of the loss (--allow). bf16 trains fp32 weights under autocast; there rounding makes the curves part, so
--allow-last compares the mean loss of the last quarter instead, in nats. Exit code 4: they differ by more. On a GPU the steps are
one CUDA graph; how long one takes, and with .item() behind each, is measured after the run, and the same without the graph."""
import argparse
import collections
import csv
import json
import mmap
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LambdaLR, LinearLR, SequentialLR

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import library  # noqa: E402
import load  # noqa: E402
import model as peer  # noqa: E402
import record  # noqa: E402
import start as begin  # noqa: E402

# `again`: a second run in PyTorch says how much its own losses differ. A vocabulary and d_ff of 0 are those of the size; the
# last case has the blocks and the vocabulary of GPT-2 124M.
Case = collections.namedtuple("Case", "size seq precision steps every allow allow_last again vocab d_ff", defaults=(0, 0))
CASES = (Case("small", 512, "fp32", 200, 1, 1e-4, None, True), Case("small", 512, "bf16", 2000, 10, None, 0.01, False),
         Case("small", 512, "fp8-tensorwise", 1000, 10, None, 0.02, False), Case("small", 512, "fp8-rowwise", 1000, 10, None, 0.02, False),
         Case("small", 1024, "bf16", 1000, 10, None, 0.01, False, 50257, 2048))
SMALL = (Case("tiny", 32, "fp32", 40, 1, 1e-4, None, True), Case("tiny", 32, "bf16", 40, 10, None, 0.02, False))


def tensors_of(path):
    """A safetensors file of fp32, by name."""
    with open(path, "rb") as file:
        text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    length, = struct.unpack("<Q", text[:8])
    for name, about in json.loads(text[8:8 + length]).items():
        begin, end = about["data_offsets"]
        yield name, torch.frombuffer(text, dtype=torch.float32, count=(end - begin) // 4,
                                     offset=8 + length + begin).reshape(about["shape"])


def tokens_of(path):
    """(steps, global batch, seq + 1)."""
    with open(path, "rb") as file:
        text = file.read()
    length, = struct.unpack("<H", text[8:10])
    shape = [int(n) for n in re.search(rb"\((\d+), (\d+), (\d+),?\)", text[10:10 + length]).groups()]
    return torch.frombuffer(bytearray(text[10 + length:]), dtype=torch.int32).reshape(shape).long()


def create(options, start, device):
    if options["heads"] != options["heads_kv"]:
        sys.exit("run.py: this peer has no grouped heads; run bench_run without --heads-kv")
    load.SIZES["dumped"] = options["d_model"], options["d_ff"], options["layers"], options["heads"]
    net = peer.LanguageModel("dumped", options["seq"], options["vocab"])
    values = dict(tensors_of(start))
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(values.pop(begin.our_names(name)[0]))
    assert not values, f"tensors without a place: {sorted(values)}"
    return net.to(device)


def rates_of(options):
    """The rate of each step, by PyTorch's schedulers."""
    lr, low, warmup = options["lr"], options["min_lr"], options["lr_warmup"]
    steps = max(options["steps"] - warmup, 1)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)

    def wsd(step):
        over = min(step / steps, 1)
        return (low + (lr - low) * (1 if over <= 0.8 else 1 - ((over - 0.8) / 0.2) ** 0.5)) / lr
    decay = {"constant": lambda: ConstantLR(optimizer, factor=1.0, total_iters=0),
             "linear": lambda: LinearLR(optimizer, start_factor=1.0, end_factor=low / lr, total_iters=steps),
             "cosine": lambda: CosineAnnealingLR(optimizer, T_max=steps, eta_min=low),
             "wsd": lambda: LambdaLR(optimizer, wsd)}[options["schedule"]]
    schedule = decay()
    if warmup:
        first = LinearLR(optimizer, start_factor=1 / warmup, end_factor=1.0, total_iters=max(warmup - 1, 1))
        schedule = SequentialLR(optimizer, [first, decay()], [warmup])
    for _ in range(options["steps"]):
        yield optimizer.param_groups[0]["lr"]
        optimizer.step()
        schedule.step()


class Trainer:
    """Steps of a model from where its parameters are; `graph`: each is one CUDA graph."""

    def __init__(self, options, net, tokens, device, graph):
        self.options, self.net, self.tokens, self.device = options, net, tokens, device
        self.window = torch.zeros(tokens.shape[1:], dtype=tokens.dtype, device=device)
        self.rate = torch.tensor(options["lr"], device=device)
        self.norm = torch.tensor(float("nan"), device=device)
        self.optimizer = torch.optim.AdamW(net.parameters(), lr=self.rate, betas=options["betas"], eps=options["eps"],
                                           weight_decay=options["weight_decay"], fused=device == "cuda" or None, capturable=device == "cuda")
        self.graph = self.captured() if graph else None

    def work(self):
        wide = self.options["precision"] == "fp32"
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=not wide, cache_enabled=False):
            self.loss = F.cross_entropy(self.net(self.window[:, :-1]).float().flatten(0, 1), self.window[:, 1:].flatten())
        self.optimizer.zero_grad(set_to_none=True)
        self.loss.backward()
        if self.options["clip"]:
            self.norm = torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.options["clip"])
        self.optimizer.step()

    @torch.no_grad()
    def captured(self):
        """The steps in front of a capture leave nothing behind."""
        parameters = list(self.net.parameters())
        start = [p.clone() for p in parameters]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.enable_grad():
            for _ in range(3):
                self.work()
        torch.cuda.current_stream().wait_stream(side)
        for p, value in zip(parameters, start):
            p.copy_(value)
            for state in self.optimizer.state[p].values():
                state.zero_()
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph), torch.enable_grad():
            self.work()
        return graph

    def step(self, number, rate):
        self.window.copy_(self.tokens[number], non_blocking=True)
        self.rate.fill_(rate)
        if self.graph:
            self.graph.replay()
        else:
            self.work()


def train(trainer, rates):
    """(loss, norm) of each step, before its update; nothing waits for the device before the end."""
    both = torch.zeros(len(rates), 2, device=trainer.device)
    for number, rate in enumerate(rates):
        trainer.step(number, rate)
        both[number, 0].copy_(trainer.loss.detach())
        both[number, 1].copy_(trainer.norm)
    return both.tolist()


def paces(trainer, rate, count):
    """Milliseconds of a step, and of one whose loss the host reads, in blocks that alternate."""
    def block(item):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for number in range(count):
            trainer.step(number, rate)
            if item:
                trainer.loss.item()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3 / count
    block(False)
    blocks = [(block(False), block(True)) for _ in range(4)]
    return [statistics.median(column) for column in zip(*blocks)]


def records_of(path):
    """(step, loss) of the bench's log, whose loss is the mean since the record before."""
    with open(path) as file:
        return [(int(row["step"]), float(row["loss"])) for row in csv.DictReader(line for line in file if line[0] != "#")]


def compare(records, losses):
    """What differs: the largest relative difference and where, the mean of the last quarter in nats, and the last loss of each."""
    before, pairs = 0, []
    for step, ours in records:
        pairs.append((abs(ours / (theirs := sum(losses[before:step]) / (step - before)) - 1), step, ours, theirs))
        before = step
    last = pairs[-max(len(pairs) // 4, 1):]
    return {"diff_rel": max(pairs)[0], "diff_step": max(pairs)[1], "diff_last": abs(sum(p[2] - p[3] for p in last)) / len(last),
            "loss_last": last[-1][3], "loss_last_ours": last[-1][2]}


def agrees(found, allow, allow_last):
    return found["diff_last"] <= allow_last if allow_last is not None else found["diff_rel"] <= allow


def run_of(dump, device):
    """Options, model and tokens as they were dumped."""
    with open(os.path.join(dump, "run.json")) as file:
        options = json.load(file)
    net = create(options, os.path.join(dump, "start.safetensors"), device)
    if options["precision"].startswith("fp8"):
        import float8
        float8.convert(net, options["precision"])
    tokens = tokens_of(os.path.join(dump, "tokens.npy"))
    return options, net, tokens.pin_memory() if device == "cuda" else tokens


def write_curve(path, options, rates, curve):
    with open(path, "w") as file:
        file.write(f"# torch {torch.__version__}, {options['precision']}\nstep,loss,norm,rate\n")
        for number, ((loss, norm), rate) in enumerate(zip(curve, rates)):
            file.write(f"{number + 1},{loss:.9g},{norm:.9g},{rate:.9g}\n")


# ---- rows beside bench_run's ----

def ours(case, device, folder, dump):
    """Runs bench_run; the log of its row."""
    program = os.path.join(os.environ.get("STEPBENCH_BIN", library.ROOT), "bench_run")
    rows = os.path.join(folder, "bench_run.csv")
    fusion = ["--fusion", "graph"] if device == "cuda" else []
    subprocess.run([program, "--device", device, "--size", case.size, "--seq", str(case.seq), "--batch", "4", "--vocab", str(case.vocab),
                    "--d-ff", str(case.d_ff), "--precision", case.precision, *fusion,
                    "--variant", "log", "--steps", str(case.steps), "--log-every", str(case.every), "--iters", "0", "--dump", dump, "--csv", rows],
                   check=True, stdout=subprocess.DEVNULL)
    with open(rows, newline="") as file:
        return os.path.join(folder, "run", list(csv.DictReader(file))[-1]["log"] + ".csv")


def measure(case, device, folder):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as dump:
        log = ours(case, device, folder, dump)
        options, net, tokens = run_of(dump, device)
        start = [p.detach().clone() for p in net.parameters()]
    graph, rates = device == "cuda", list(rates_of(options))
    trainer = Trainer(options, net, tokens, device, graph)
    curve = train(trainer, rates)
    write_curve(log.replace(".csv", "-torch.csv"), options, rates, curve)
    losses = [loss for loss, _ in curve]
    found = compare(records_of(log), losses) | {"vocab": options["vocab"], "d_ff": options["d_ff"]}
    if graph:
        found["step_ms"], found["item_ms"] = paces(trainer, rates[-1], 15)
        found["eager_ms"], found["eager_item_ms"] = paces(Trainer(options, net, tokens, device, False), rates[-1], 5)
    if case.again:
        with torch.no_grad():
            for p, value in zip(net.parameters(), start):
                p.copy_(value)
        again = train(Trainer(options, net, tokens, device, graph), rates)
        found["spread_rel"] = max(abs(a / b - 1) for (a, _), b in zip(again, losses))
    if not agrees(found, case.allow, case.allow_last):
        found["note"] = "the losses differ by more than they may"
    return found


def all_rows(folder, cases, device):
    """An exit code."""
    rows, failed = record.Rows("run", folder), 0
    for case in cases:
        try:
            found = measure(case, device, folder)
        except Exception as error:
            found = {"note": record.reason_of(error)}
        failed += "note" in found
        rows.add(bench="run", size=case.size, seq=case.seq, batch=4, precision=case.precision, steps=case.steps,
                 mode="graph" if device == "cuda" else "eager", allow_rel=case.allow or "", allow_last=case.allow_last or "",
                 policy="autocast, fp32 weights, fused AdamW" if case.precision != "fp32" else "fp32, fused AdamW", **found)
        if device == "cuda":
            torch.cuda.empty_cache()
    return int(failed > 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", nargs="?", help="the folder of bench_run --dump")
    parser.add_argument("--rows", help="instead of it a folder of results: bench_run is started, and peer_run.csv gets rows")
    parser.add_argument("--small", action="store_true", help="with --rows: tiny cases, to try it")
    parser.add_argument("--cases", default="", help="with --rows: only those that have all of these words, such as 'small fp32'")
    parser.add_argument("--log", help="the CSV log of that run")
    parser.add_argument("--out", help="where PyTorch's losses go (default: the log's name and -torch)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--allow", type=float, default=1e-4)
    parser.add_argument("--allow-last", type=float)
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if bool(arguments.dump) == bool(arguments.rows):
        parser.error("either a folder of bench_run --dump, or --rows")
    if arguments.rows:
        return all_rows(arguments.rows, record.chosen(SMALL if arguments.small else CASES, arguments.cases), arguments.device)
    options, net, tokens = run_of(arguments.dump, arguments.device)
    rates = list(rates_of(options))
    curve = train(Trainer(options, net, tokens, arguments.device, arguments.device == "cuda"), rates)
    out = arguments.out or (arguments.log and arguments.log.replace(".csv", "-torch.csv"))
    if out:
        write_curve(out, options, rates, curve)
    if not arguments.log:
        return 0
    found = compare(records_of(arguments.log), [loss for loss, _ in curve])
    print(", ".join(f"{name} {value:.6g}" for name, value in found.items()))
    return 0 if agrees(found, arguments.allow, arguments.allow_last) else 4


if __name__ == "__main__":
    sys.exit(main())
