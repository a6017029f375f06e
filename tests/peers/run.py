#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The same training run in PyTorch: model, initial values, tokens, order, schedule and clipping are those that `./bench_run --dump
FOLDER` has written. Compares its losses with the log of the bench, and writes them beside it for the figure.

  ./bench_run --device cpu --size tiny --precision fp32 --variant log --steps 200 --dump dump
  tests/peers/run.py dump --log results/<machine>/run/log-ddp-1-tiny-32-fp32.csv

fp32 is to agree to 1e-4 of the loss (--allow). bf16 trains fp32 weights under autocast; there rounding makes the curves part, so
--allow-last compares the mean loss of the last quarter instead, in nats. Exit code 4: they differ by more."""
import argparse
import csv
import json
import mmap
import os
import re
import struct
import sys

import torch
import torch.nn.functional as F
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LambdaLR, LinearLR, SequentialLR

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import load  # noqa: E402
import model as peer  # noqa: E402
import start as begin  # noqa: E402


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
    attention = "sdpa" if hasattr(F, "scaled_dot_product_attention") else "naive"
    net = peer.LanguageModel("dumped", options["seq"], attention, options["vocab"])
    values = dict(tensors_of(start))
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(values.pop(begin.our_names(name)[0]))
    assert not values, f"tensors without a place: {sorted(values)}"
    return net.to(device)


def schedule_of(options, optimizer):
    lr, low, warmup = options["lr"], options["min_lr"], options["lr_warmup"]
    steps = max(options["steps"] - warmup, 1)

    def wsd(step):
        over = min(step / steps, 1)
        return (low + (lr - low) * (1 if over <= 0.8 else 1 - ((over - 0.8) / 0.2) ** 0.5)) / lr
    decay = {"constant": lambda: ConstantLR(optimizer, factor=1.0, total_iters=0),
             "linear": lambda: LinearLR(optimizer, start_factor=1.0, end_factor=low / lr, total_iters=steps),
             "cosine": lambda: CosineAnnealingLR(optimizer, T_max=steps, eta_min=low),
             "wsd": lambda: LambdaLR(optimizer, wsd)}[options["schedule"]]
    if not warmup:
        return decay()
    first = LinearLR(optimizer, start_factor=1 / warmup, end_factor=1.0, total_iters=max(warmup - 1, 1))
    return SequentialLR(optimizer, [first, decay()], [warmup])


def train(options, net, tokens, device):
    """The loss of each step, before its update."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=options["lr"], betas=options["betas"], eps=options["eps"],
                                  weight_decay=options["weight_decay"])
    schedule = schedule_of(options, optimizer)
    wide = options["precision"] == "fp32"
    for step in range(options["steps"]):
        window = tokens[step].to(device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=not wide):
            loss = F.cross_entropy(net(window[:, :-1]).float().flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), options["clip"]) if options["clip"] else torch.tensor(float("nan"))
        rate = optimizer.param_groups[0]["lr"]
        optimizer.step()
        schedule.step()
        yield loss.detach(), norm.detach(), rate


def records_of(path):
    """(step, loss) of the bench's log, whose loss is the mean since the record before."""
    with open(path) as file:
        return [(int(row["step"]), float(row["loss"])) for row in csv.DictReader(line for line in file if line[0] != "#")]


def compare(records, losses, arguments):
    worst, at, before, pairs = 0.0, 0, 0, []
    for step, ours in records:
        theirs = sum(losses[before:step]) / (step - before)
        pairs.append((ours, theirs))
        if abs(ours - theirs) / abs(theirs) > worst:
            worst, at = abs(ours - theirs) / abs(theirs), step
        before = step
    last = pairs[-max(len(pairs) // 4, 1):]
    off = abs(sum(ours - theirs for ours, theirs in last)) / len(last)
    print(f"{len(pairs)} records: the largest relative difference is {worst:.2e}, at step {at}; "
          f"the last quarter is off by {off:.2e} nats; last losses {pairs[-1][0]:.6g} and {pairs[-1][1]:.6g}")
    return off <= arguments.allow_last if arguments.allow_last is not None else worst <= arguments.allow


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", help="the folder of bench_run --dump")
    parser.add_argument("--log", help="the CSV log of that run")
    parser.add_argument("--out", help="where PyTorch's losses go (default: the log's name and -torch)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--allow", type=float, default=1e-4)
    parser.add_argument("--allow-last", type=float)
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with open(os.path.join(arguments.dump, "run.json")) as file:
        options = json.load(file)
    net = create(options, os.path.join(arguments.dump, "start.safetensors"), arguments.device)
    rows = list(train(options, net, tokens_of(os.path.join(arguments.dump, "tokens.npy")), arguments.device))
    losses = [loss.item() for loss, _, _ in rows]
    out = arguments.out or (arguments.log and arguments.log.replace(".csv", "-torch.csv"))
    if out:
        with open(out, "w") as file:
            file.write(f"# torch {torch.__version__}, {options['precision']}\nstep,loss,norm,rate\n")
            for step, (loss, norm, rate) in enumerate(rows):
                file.write(f"{step + 1},{loss.item():.9g},{norm.item():.9g},{rate:.9g}\n")
    if arguments.log and not compare(records_of(arguments.log), losses, arguments):
        sys.exit(4)


if __name__ == "__main__":
    main()
