#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes schedule.csv, the learning rates of torch.optim.lr_scheduler that tests/run/test_run.c holds ours against:
make_golden_schedule.py OUTDIR (needs torch). Warm-up is LinearLR, decays are LinearLR, CosineAnnealingLR and, for wsd, LambdaLR
with the published formula (constant, then 1 - sqrt over the last fifth)."""
import argparse
import math
import os

import torch
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LambdaLR, LinearLR, SequentialLR

LR = 3e-4


def decay_of(name, optimizer, steps, min_lr):
    if name == "constant":
        return ConstantLR(optimizer, factor=1.0, total_iters=0)
    if name == "linear":
        return LinearLR(optimizer, start_factor=1.0, end_factor=min_lr / LR, total_iters=steps)
    if name == "cosine":
        return CosineAnnealingLR(optimizer, T_max=steps, eta_min=min_lr)

    def share(step):
        over = step / steps
        left = 1 if over <= 0.8 else 1 - math.sqrt((over - 0.8) / 0.2)
        return (min_lr + (LR - min_lr) * left) / LR
    return LambdaLR(optimizer, share)


def rates(name, warmup, steps, min_lr):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    if warmup:
        first = LinearLR(optimizer, start_factor=1 / warmup, end_factor=1.0, total_iters=max(warmup - 1, 1))
        schedule = SequentialLR(optimizer, [first, decay_of(name, optimizer, steps - warmup, min_lr)], [warmup])
    else:
        schedule = decay_of(name, optimizer, steps, min_lr)
    for _ in range(steps):
        yield optimizer.param_groups[0]["lr"]
        optimizer.step()
        schedule.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outdir")
    with open(os.path.join(parser.parse_args().outdir, "schedule.csv"), "w") as file:
        file.write(f"# torch {torch.__version__}, lr {LR}\nname,warmup,steps,min_lr,step,rate\n")
        for name in ("constant", "linear", "cosine", "wsd"):
            for warmup, steps, min_lr in ((0, 20, 3e-5), (5, 40, 3e-5), (10, 50, 0.0)):
                for step, rate in enumerate(rates(name, warmup, steps, min_lr)):
                    file.write(f"{name},{warmup},{steps},{min_lr!r},{step},{rate:.12g}\n")


if __name__ == "__main__":
    main()
