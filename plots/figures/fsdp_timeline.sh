# SPDX-License-Identifier: MIT
# Recorded steps of sharded training: a file for each strategy and way to gather.
# shellcheck shell=sh disable=SC2154
. "$plots/shared/timeline.sh"
set --
for name in zero2 fsdp fsdp-copy fsdp-own fsdp-keep hsdp; do
    [ ! -s "$results/timeline/$name.csv" ] || set -- "$@" "$results/timeline/$name.csv"
done
draw_timeline fsdp_timeline "Recorded steps of sharded training" '"%.1f ms, exposed %.1f of %.1f", $1, $12, $7' "$@"
