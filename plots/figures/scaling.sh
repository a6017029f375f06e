# SPDX-License-Identifier: MIT
# A figure for each dimension that was varied alone: blocks, width, batch, context, key and value heads. Where a dimension is 0,
# it is that of the size: such rows vary in something else, and are left out.
# shellcheck shell=sh disable=SC2154
transformer=$results/bench_transformer.csv
[ -s "$transformer" ] || exit 0
level=variant=kernels warm= # the CPU has no graphs; rows of the warm-up study stand apart
if has graph "$(values_of "$transformer" variant status=ok)"; then level=variant=graph; fi
if has 5 "$(values_of "$transformer" warmup status=ok)"; then warm=warmup=5; fi

for sweep in layers:3:precision:depth:blocks 'd_model:3:precision:width:width (d-model)' \
    batch:3:precision:batch:sequences 'seq:5:recompute:context:context length S (tokens)' \
    'heads_kv:3:precision:heads:key and value heads'; do
    axis=${sweep%%:*} rest=${sweep#*:}
    least=${rest%%:*} rest=${rest#*:}
    by=${rest%%:*} rest=${rest#*:}
    name=${rest%%:*} what=${rest#*:}
    # shellcheck disable=SC2086 # no warm-up is no argument
    pick "$transformer" "$axis,$by" "$level" mode=train-step $warm "$axis!=0" || continue
    points=$(values "$axis")
    [ "$(echo "$points" | wc -w)" -ge "$least" ] || continue
    draw "scaling_$name" "Scaling in $name ($shape)" "axis=$axis" "axis_text=$what" \
        "points=$points" "by=$by" "lines=$(values "$by")"
done
