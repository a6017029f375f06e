# SPDX-License-Identifier: MIT
# Recorded steps of data parallelism: a file for each recording, from the simplest strategy to the best, then any others.
# shellcheck shell=sh disable=SC2154
. "$plots/shared/timeline.sh"
set --
for strategy in naive flat overlap bucketed zero1; do
    [ ! -s "$results/timeline/$strategy.csv" ] || set -- "$@" "$results/timeline/$strategy.csv"
done
for file in "$results"/timeline/*.csv; do
    case ${file##*/} in
        naive.csv | flat.csv | overlap.csv | bucketed.csv | zero1.csv) continue ;;
        zero2.csv | fsdp*.csv | hsdp.csv) continue ;; # fsdp_timeline has them
    esac
    [ ! -s "$file" ] || set -- "$@" "$file"
done
title="Recorded training steps"
[ ! -s "$results/timeline/zero1.csv" ] || title="$title (two of zero1, whose gathers run beside the next forward)"
draw_timeline ddp_timeline "$title" '"%.1f ms, communication %.1f, exposed %.1f", $1, $7, $12' "$@"
