# SPDX-License-Identifier: MIT
# Schedules of one pipeline as they were predicted and as they ran, two panels for each: the case of which there are most schedules.
# shellcheck shell=sh disable=SC2154
of_case="json_remove(options, '$.chunks')"
asked "SELECT variant || char(9) || timeline || char(9) || printf('%.1f', bubble_pct) || char(9) || printf('%.1f', predicted_bubble_pct)
    || char(9) || ranks || char(9) || micro_batches || char(9) || plan_chunks || char(9) || size || ', S ' || seq FROM bench_pp m
    WHERE status = 'ok' AND timeline IS NOT NULL AND ranks > 1
    AND $of_case = (SELECT $of_case FROM bench_pp WHERE status = 'ok' AND timeline IS NOT NULL AND ranks > 1
        GROUP BY 1 ORDER BY count(DISTINCT variant) DESC, min(id) LIMIT 1)
    AND id = (SELECT min(id) FROM bench_pp o WHERE o.status = 'ok' AND o.timeline IS NOT NULL AND o.variant = m.variant
        AND json_remove(o.options, '$.chunks') = json_remove(m.options, '$.chunks'))
    ORDER BY instr('gpipe 1f1b interleaved zb-h1 zb-v', variant)" >"$work/recorded"
count=0 files='' about='' lines=0
: >"$work/ppr_labels"
while IFS="$tab" read -r variant timeline bubble predicted ranks micros chunks model; do
    file=$results/pipeline/${timeline##*/}
    case $variant in *[!a-z0-9-]*) continue ;; esac
    [ -s "$file" ] || continue
    about="$model, $ranks ranks, $micros micro-batches" more='' lines=$((3 * chunks * micros))
    [ "$chunks" = 1 ] || more=", $chunks chunks a rank"
    for strip in predicted recorded; do
        count=$((count + 1)) stands="stands still for $bubble %"
        [ "$strip" = recorded ] || stands="predicted, $predicted %"
        awk -F, -v strip="$strip" '/^#/ || $1 == "strip" || $1 == strip' "$file" >"$work/ppr-$count"
        files="$files ppr-$count"
        echo "label_$count = $(quoted "$variant$more: $stands")" >>"$work/ppr_labels"
    done
done <"$work/recorded"
if [ "$count" -gt 0 ]; then
    {
        echo "title = $(quoted "A pipeline's step, predicted and recorded: $about"); caption = 'the median step of each schedule'"
        echo "files = $(quoted "$files"); time_label = 'ms'; crowded = $((lines > 60))"
        cat "$work/ppr_labels"
    } >"$work/pp_recorded.gp"
    echo "pp_recorded pp_recorded" >>"$work/figures"
fi
