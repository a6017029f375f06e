#!/bin/bash
# SPDX-License-Identifier: MIT
# Times the algorithms of all matrix products in the runs of bench_transformer on this GPU, and writes what was chosen to
# common/train/tune/choices/<gpu>.csv, which the next build compiles in. Choices of another version of the library stay.
# usage: choices.sh PROGRAM [RUN ...]   PROGRAM is bench_transformer; a RUN is one string of its options, default: all
#                                       that PROGRAM --list-runs lists
set -u
[ $# -ge 1 ] || { echo "choices.sh: no program named" >&2; exit 2; }
program=$1
shift
name=$(nvidia-smi --id=0 --query-gpu=name --format=csv,noheader) || {
    echo 'choices.sh: nvidia-smi names no GPU; choices are made on one' >&2
    exit 77
}
if [ $# -gt 0 ]; then
    runs=("$@")
else
    mapfile -t runs < <("$program" --list-runs | awk -F'\t' '$1 == "run" && $3 == 1 { print $5 }')
fi
slug=$(tr '[:upper:] ' '[:lower:]-' <<<"${name#NVIDIA }")
shipped=common/train/tune/choices/$slug.csv
machine=choices-$$ results=results/choices-$$ # kept choices of its own: those of this machine stay as they are
mkdir -p "$results" && trap 'rm -rf "$results"' EXIT
status=0
for run in "${runs[@]}"; do
    warmup='--warmup 0'
    [[ $run != *--warmup* ]] || warmup=''
    # shellcheck disable=SC2086 # words are meant to be split
    "$program" $run $warmup --retune --check 0 --iters 1 --overlap none --machine "$machine" </dev/null || status=$?
done
[ -s "$results/gemm_choices.csv" ] || { echo 'choices.sh: nothing was chosen' >&2; exit 1; }

touch "$shipped"
bash "$(dirname "$0")/choices_merge.sh" "$shipped" "$results/gemm_choices.csv" \
    >"$results/merged.csv" && mv "$results/merged.csv" "$shipped"
echo "$((($(wc -l <"$shipped")) - 1)) choices in $shipped"
grep -q "choices/$slug.csv" common/train/tune/shipped.c ||
    echo "add a line for \"$name\" to common/train/tune/shipped.c"
exit $status
