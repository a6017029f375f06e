#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: example.sh BUILD SCRATCH
# Adds the example of CONTRIBUTING.md to a copy of the tree, builds it there with the objects of BUILD, runs it, draws its
# figure and writes the report. A code block is a file if the line before it ends with `its path`: and it has a language.
set -eu
build=$1 tree=$2

mkdir -p "$tree/plots" "$tree/$build"
cp -a Makefile run_all.sh bench common kernels reference "$tree"
cp -a plots/*.sh plots/*.gp plots/*.c plots/figures plots/shared "$tree/plots"
# Without programs, tests and build folders inside this one.
(cd "$build" && find . \( -name tests -o -name logs -o -name 'bench_*' -type f -perm -u+x \) -prune -o -type f -print |
    while IFS= read -r file; do
        inner=${file#./} inner=${inner%%/*}
        [ "$inner" != "${file#./}" ] && [ -e "$inner/config.mk" ] || printf '%s\n' "$file"
    done | tar -cf - -T -) | tar -xf - -C "$tree/$build"

awk -v tree="$tree" '
    /^```/ && file { close(file); file = ""; next }
    file { print >file; next }
    /^```[a-z]/ && path { file = tree "/" path; path = ""; next }
    NF { path = "" }
    /`[^`]+`:$/ { path = $0; sub(/`:$/, "", path); sub(/.*`/, "", path) }' CONTRIBUTING.md
cd "$tree"
for file in bench/bench_fill.c common/report/sections/fill.sql plots/figures/fill.sql plots/figures/fill.gp; do
    [ -s "$file" ] || { echo "example.sh: CONTRIBUTING.md has no $file" >&2; exit 1; }
done

bin=$build
[ "$build" != build ] || bin=.
cuda=1
grep -q '^HAVE_CUDA' "$build/config.mk" || cuda=0
# Variables that this build was given (CUDA_ARCH=80,90 ...) hold here, too, or everything would be built again.
case ${MAKEFLAGS:-} in *'-- '*) export MAKEFLAGS=" -- ${MAKEFLAGS#*-- }" ;; *) unset MAKEFLAGS ;; esac
unset MAKELEVEL
make -j2 --no-print-directory BUILD="$build" CUDA=$cuda STEPBENCH_COMMIT=example STEPBENCH_DIRTY=0 \
    "$bin/bench_fill" "$build/report"
"$bin/bench_fill" --device cpu --machine example-x1 --bytes 64K,1M --iters 3
! grep -qvE '^schema|,ok,' results/example-x1/bench_fill.csv
BENCHES=$bin REPORT=$build/report sh plots/draw.sh results/example-x1
if command -v gnuplot >/dev/null; then [ -s plots/example-x1/fill.svg ]; fi
"$build/report" results/example-x1
grep -q '<summary>bench_fill' results/example-x1/report.html
