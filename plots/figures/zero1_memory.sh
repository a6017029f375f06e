# SPDX-License-Identifier: MIT
# What is held depends neither on context nor on batch: those of the first row stand for all. A panel for each pair of
# dtypes.
# shellcheck shell=sh disable=SC2154
. "$plots/shared/ddp.sh"
panels='' seq=$(each_of seq variant=zero1 main=1) batch=$(each_of batch variant=zero1 main=1)
pick_ddp main=1 best=1 "seq=${seq%% *}" "batch=${batch%% *}" || exit 0
for precision in $(ordered 'fp32 tf32 bf16 bf16-pure fp16' "$(values precision variant=zero1)"); do
    for gradients in $(values gradients variant=zero1 "precision=$precision"); do
        panels="$panels $precision/$gradients"
    done
done
[ -z "$panels" ] || draw zero1_memory "Memory of a rank after an update ($shape)" "panels=$panels" \
    "ranks=$(values ranks variant=zero1)" "ways=$(ordered 'unsharded zero1 zero1-broadcast' "$(values variant)")"
