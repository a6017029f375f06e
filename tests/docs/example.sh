#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: example.sh BUILD SCRATCH
# Adds the examples of CONTRIBUTING.md, a bench and a strategy, to a copy of the tree, builds them there with the objects of
# BUILD, runs them and the tests that look at every bench and strategy, draws the bench's figure and writes the report. A code
# block is a file if the line before it ends with `its path`: and it has a language.
set -eu
build=$1 tree=$2

mkdir -p "$tree/plots" "$tree/$build"
cp -a Makefile run_all.sh bench common kernels reference tests "$tree"
mkdir -p "$tree/results" && cp -a results/published "$tree/results"
cp -a plots/*.sh plots/*.gp plots/*.c plots/figures plots/shared plots/report "$tree/plots"
# Without programs, logs and build folders inside this one; of the tests, what they share.
(cd "$build" && find . \( -path './tests/[!s]*' -o -name logs -o -name 'bench_*' -type f -perm -u+x \) -prune -o -type f -print |
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
for file in bench/bench_fill.c plots/report/sections/fill.sql plots/figures/fill.sql plots/figures/fill.gp \
    tests/bench/test_columns_fill.c; do
    [ -s "$file" ] || { echo "example.sh: CONTRIBUTING.md has no $file" >&2; exit 1; }
done
row=$(sed -n '/^    {"bucketed-after"/,/"},$/p' "$OLDPWD/CONTRIBUTING.md")
[ -n "$row" ] || { echo 'example.sh: CONTRIBUTING.md has no row of a strategy' >&2; exit 1; }
{ sed '/{\.name = NULL}/,$d' common/parallel/strategy.c && printf '%s\n' "$row" &&
    sed -n '/{\.name = NULL}/,$p' common/parallel/strategy.c; } >strategy.c
mv strategy.c common/parallel/strategy.c

bin=$build
[ "$build" != build ] || bin=.
cuda=1
grep -q '^HAVE_CUDA' "$build/config.mk" || cuda=0
# Variables that this build was given (CUDA_ARCH=80,90 ...) hold here, too, or everything would be built again; but which
# tests there are is asked anew.
case ${MAKEFLAGS:-} in *'-- '*) MAKEFLAGS=" -- $(sed -E 's/(^| )TESTS=(\\.|[^ \\])*//' <<<"${MAKEFLAGS#*-- }")" ;; *) MAKEFLAGS= ;; esac
export MAKEFLAGS
unset MAKELEVEL
make -j2 --no-print-directory BUILD="$build" CUDA=$cuda STEPBENCH_COMMIT=example STEPBENCH_DIRTY=0 \
    "$bin/bench_fill" "$bin/bench_ddp_bucketed" "$build/report" \
    "$build"/tests/bench/test_columns_fill "$build"/tests/bench/test_list_runs "$build"/tests/parallel/test_parallel
export STEPBENCH_BIN=$bin
"$build/tests/bench/test_columns_fill"
"$build/tests/parallel/test_parallel"
# Without Gloo no ranks run: exit code 77.
"$bin/bench_ddp_bucketed" --device cpu --ranks 2 --size tiny --seq 16 --iters 2 --variant bucketed-after --csv none || [ $? = 77 ]
for bench in bench/bench_*.c; do # whose programs are those of this build; one bench and its lists are new
    name=$(basename "$bench" .c)
    [ -x "$bin/$name" ] || ln -s "$OLDPWD/$bin/$name" "$bin/$name"
done
"$build/tests/bench/test_list_runs"
"$bin/bench_fill" --device cpu --machine example-x1 --bytes 64K,1M --iters 3
! grep -qvE '^schema|,ok,' results/example-x1/bench_fill.csv
BENCHES=$bin REPORT=$build/report sh plots/draw.sh results/example-x1
if command -v gnuplot >/dev/null; then [ -s plots/example-x1/fill.svg ]; fi
"$build/report" results/example-x1
grep -q '<summary>bench_fill' results/example-x1/report.html
