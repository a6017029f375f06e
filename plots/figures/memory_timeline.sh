# SPDX-License-Identifier: MIT
# The timelines of the longest context, a panel for each mode.
# shellcheck shell=sh disable=SC2154
memory=$results/bench_memory.csv
[ -s "$memory" ] || exit 0
# A timeline's rows as corners of steps, so that each kind is one polygon. Of many rows one stands for several of its
# phase: the one that holds most.
outline() { # FILE
    awk -F, -v OFS=, -v most_rows=300 '
        function corners(end) { $0 = text; $op = start; print; $op = end; print }
        /^#/ { next }
        !op { for (i = 1; i <= NF; i++) column[$i] = i; op = column["op"]; live = column["live_bytes"]; print; next }
        { row[++rows] = $0 }
        END {
            for (i = 1; i <= rows; i++) {
                $0 = row[i]
                group = $column["phase"] " " (rows > most_rows ? int(i * most_rows / rows) : i)
                if (group != last) {
                    here = $op; kept = row[i]; now = $live
                    if (i > 1) corners(here)
                    start = here; text = kept; most = now; last = group
                } else if ($live > most) { text = row[i]; most = $live }
                end = here
            }
            if (rows) corners(end + 1)
        }' "$1"
}
level=kernels # the CPU has no graphs
if has graph "$(values_of "$memory" variant status=ok)"; then level=graph; fi
for precision in $(values_of "$memory" precision); do
    pick "$memory" seq,precision,mode "precision=$precision" "variant=$level" || continue
    longest=$(values seq)
    longest=${longest##* }
    files='' panels=''
    for mode in forward forward-backward train-step; do
        name=$(values events "mode=$mode" "seq=$longest")
        timeline=$results/memory/${name##*/}
        [ -f "$timeline" ] || continue
        outline "$timeline" >"$work/timeline-$mode"
        files="$files timeline-$mode" panels="$panels $mode"
    done
    [ -z "$files" ] || draw "memory_timeline_$precision" "Memory of a step at S $longest, $precision ($shape)" \
        "files=$files" "panels=$panels"
done
