# SPDX-License-Identifier: MIT
# The timelines of the longest context, a panel for each mode.
# shellcheck shell=sh disable=SC2154
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
asked "SELECT precision || char(9) || mode || char(9) || events || char(9) || 'Memory of a step at S ' || seq || ', ' || precision || ' (' || size || ', batch ' || batch || ')'
    || char(9) || machine || ', ' || gpu || ', ' || substr(utc, 1, 10) FROM bench_memory m
    WHERE status = 'ok' AND precision NOT GLOB '*[^a-z0-9-]*' AND mode IN ('forward', 'forward-backward', 'train-step') AND recompute = 'none' AND variant = (SELECT iif(sum(variant = 'graph'), 'graph', 'kernels') FROM bench_memory)
        AND size = (SELECT size FROM bench_memory WHERE status = 'ok' GROUP BY size ORDER BY count(*) DESC, min(id) LIMIT 1)
        AND seq = (SELECT max(seq) FROM bench_memory l WHERE l.size = m.size AND l.status = 'ok' AND l.recompute = 'none')
    ORDER BY precision, mode = 'train-step', mode" >"$work/recorded"
for precision in $(cut -f 1 "$work/recorded" | sort -u); do
    files='' panels=''
    while read -r of mode events title; do
        timeline=$results/memory/${events##*/}
        if [ "$of" != "$precision" ] || [ ! -f "$timeline" ]; then continue; fi
        outline "$timeline" >"$work/timeline-$precision-$mode"
        files="$files timeline-$precision-$mode" panels="$panels $mode" text=$title
    done <"$work/recorded"
    [ -n "$files" ] || continue
    {
        echo "title = $(quoted "${text%%"$tab"*}"); caption = $(quoted "${text#*"$tab"}")"
        echo "files = $(quoted "$files"); panels = $(quoted "$panels")"
    } >"$work/memory_timeline_$precision.gp"
    echo "memory_timeline memory_timeline_$precision" >>"$work/figures"
done
# A rank's step by strategy, from the recordings of --timeline.
files='' panels=''
for strategy in unsharded bucketed zero1 zero2 fsdp; do
    timeline=$results/memory/${strategy}_rank0.csv
    [ -f "$timeline" ] || continue
    outline "$timeline" >"$work/timeline-$strategy"
    files="$files timeline-$strategy" panels="$panels $strategy" text=$(sed -n '1s/^# [^:]*: //p' "$timeline")
done
if [ -n "$files" ]; then
    {
        echo "title = $(quoted "Memory of rank 0 by strategy"); caption = $(quoted "$text"); alike = 1"
        echo "files = $(quoted "$files"); panels = $(quoted "$panels")"
    } >"$work/memory_timeline_ranks.gp"
    echo "memory_timeline memory_timeline_ranks" >>"$work/figures"
fi
