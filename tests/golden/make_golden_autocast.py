# SPDX-License-Identifier: MIT
"""Writes autocast.csv: the dtype that PyTorch gives each tensor of the course's small model under autocast.

usage: python3 tests/golden/make_golden_autocast.py > tests/golden/autocast.csv        (needs PyTorch and a GPU)

fc1 (no bias), ReLU, LayerNorm, fc2 (no bias), cross-entropy, then backward; low = fp32 is autocast turned off.
"""
import torch
from torch import nn

NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


def rows(low):
    torch.manual_seed(0)
    model = nn.ModuleDict(
        {"fc1": nn.Linear(32, 10, bias=False), "ln": nn.LayerNorm(10), "fc2": nn.Linear(10, 16, bias=False)}
    ).cuda()
    x, targets = torch.randn(64, 32, device="cuda"), torch.randint(16, (64,), device="cuda")
    made = {}
    with torch.autocast("cuda", dtype=low, enabled=low != torch.float32):
        made["fc1"] = model["fc1"](x)
        made["relu"] = torch.relu(made["fc1"])
        made["ln"] = model["ln"](made["relu"])
        made["logits"] = model["fc2"](made["ln"])
        made["loss"] = nn.functional.cross_entropy(made["logits"], targets)
    made["loss"].backward()
    for name, parameter in model.named_parameters():
        yield name, parameter.dtype
    for name, tensor in made.items():
        yield name, tensor.dtype
    for name, parameter in model.named_parameters():
        yield name + ".grad", parameter.grad.dtype


print("low,tensor,dtype")
for low in NAMES:
    for tensor, dtype in rows(low):
        print(f"{NAMES[low]},{tensor},{NAMES[dtype]}")
