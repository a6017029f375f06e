# SPDX-License-Identifier: MIT
# Simulated schedules of one pipeline, a panel for each: the one of which there are most schedules.
# shellcheck shell=sh disable=SC2154
asked "SELECT schedule || char(9) || actions || char(9) || printf('%.1f', schedule_bubble_pct) || char(9) || stages || char(9) ||
    micro_batches || char(9) || plan_chunks || char(9) || printf('%g', in_flight) FROM bench_mesh m WHERE variant = 'schedule'
    AND status = 'ok' AND actions IS NOT NULL
    AND stages || ' ' || micro_batches = (SELECT stages || ' ' || micro_batches FROM bench_mesh WHERE variant = 'schedule'
        AND status = 'ok' GROUP BY stages, micro_batches ORDER BY count(DISTINCT schedule) DESC, min(id) LIMIT 1)
    AND id = (SELECT min(id) FROM bench_mesh o WHERE o.variant = 'schedule' AND o.status = 'ok' AND o.schedule = m.schedule
        AND o.stages = m.stages AND o.micro_batches = m.micro_batches)
    ORDER BY instr('gpipe 1f1b interleaved zb-h1 zb-v', schedule)" >"$work/schedules"
count=0 files='' about=''
: >"$work/pp_labels"
while IFS="$tab" read -r schedule actions bubble stages micros chunks held; do
    file=$results/pipeline/${actions##*/}
    case $schedule in *[!a-z0-9-]*) continue ;; esac
    [ -s "$file" ] || continue
    count=$((count + 1))
    cp "$file" "$work/pp-$count"
    files="$files pp-$count"
    about="$stages ranks, $micros micro-batches" more=''
    [ "$chunks" = 1 ] || more=", $chunks chunks a rank"
    echo "label_$count = $(quoted "$schedule$more: stands still for $bubble %, holds $held micro-batches")" >>"$work/pp_labels"
done <"$work/schedules"
if [ "$count" -gt 0 ]; then
    {
        echo "title = $(quoted "Schedules of a pipeline: $about"); caption = 'simulated, not measured'"
        echo "files = $(quoted "$files")"
        cat "$work/pp_labels"
    } >"$work/pp_timeline.gp"
    echo "pp_timeline pp_timeline" >>"$work/figures"
fi
