# SPDX-License-Identifier: MIT
# The timelines of the longest context, a panel for each mode.
# shellcheck shell=sh disable=SC2154
memory=$results/bench_memory.csv
[ -s "$memory" ] || exit 0
level=kernels # the CPU has no graphs
if has graph "$(values_of "$memory" variant status=ok)"; then level=graph; fi
for precision in $(values_of "$memory" precision); do
    pick "$memory" seq,precision,mode "precision=$precision" "variant=$level" || continue
    longest=$(values seq)
    longest=${longest##* }
    files='' panels=''
    for mode in forward forward-backward train-step; do
        timeline=$results/memory/$(values events "mode=$mode" "seq=$longest")
        [ -f "$timeline" ] || continue
        cp "$timeline" "$work/timeline-$mode" # a name without blanks, which separate gnuplot's lists
        files="$files $work/timeline-$mode" panels="$panels $mode"
    done
    [ -z "$files" ] || draw "memory_timeline_$precision" "Memory of a step at S $longest, $precision ($shape)" \
        "files = $(quoted "$files")" "panels = '$panels'"
done
