#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: public_readers.py CHECKPOINT    reads it as anybody would: files with safetensors, hashes with xxhash, both of PyPI.
Exit code 1 with a sentence: they see something else than the manifest says; 77: they are not installed."""
import json
import os
import sys

try:
    import xxhash
    from safetensors import safe_open
except ImportError as missing:
    print(missing)
    sys.exit(77)

BLOCK = 4 << 20
folder = sys.argv[1]
with open(os.path.join(folder, "manifest.json")) as f:
    manifest = json.load(f)
shapes = {}
for file in manifest["files"]:
    path = os.path.join(folder, file["name"])
    with safe_open(path, "np") as tensors:
        for name in tensors.keys():
            shapes[name] = tensors.get_slice(name).get_shape()
            if tensors.get_slice(name).get_dtype() == "F32":
                tensors.get_tensor(name)
    with open(path, "rb") as f:
        for run in file["runs"]:
            f.seek(run["offset"])
            left = run["bytes"]
            for want in run["hashes"]:
                block = f.read(min(BLOCK, left))
                left -= len(block)
                if xxhash.xxh64(block).hexdigest() != want:
                    sys.exit(f"{path}: a block from byte {run['offset']} on has another hash than the manifest says")
with open(os.path.join(folder, "model.safetensors.index.json")) as f:
    weights = json.load(f)["weight_map"]
for name in weights:
    for moment in ("exp_avg", "exp_avg_sq"):
        if shapes[f"{name}.{moment}"] != shapes[name]:
            sys.exit(f"{name}.{moment} has another shape than the weight")
print(f"{len(shapes)} tensors, {len(weights)} of them weights")
