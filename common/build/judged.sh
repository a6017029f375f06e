#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: judged.sh [--write]
# Exit code 0 if kernels/cuda/spill_free.txt has the hash of the kernels' sources, the flags they are compiled by and the
# toolkit that is here: then a build in which nothing spilled has had just these, and who only asks whether all compiles
# (CI) need not wait for optimizations. --write is what `make judged` calls after such a build. From the environment: NVCC.
set -eu
export LC_ALL=C
cd "$(dirname "$0")/../.."
list=kernels/cuda/spill_free.txt

nvcc=${NVCC:-$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)} || exit 1
hash=$({
    "$nvcc" --version | grep -o 'release [0-9.]*'
    sed -n '/^COMPILE_CU /,/NVCCFLAGS/p; /^GENCODE_SM90 /p' Makefile
    find kernels common/core/numeric.h common/core/rng.h \( -name '*.cu' -o -name '*.cuh' -o -name '*.h' \) | sort | xargs cat
} | sha256sum | cut -c 1-16)
[ "${1-}" != --write ] || sed -i "s/^judged .*/judged $hash/" "$list"
grep -qx "judged $hash" "$list"
