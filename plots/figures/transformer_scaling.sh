# SPDX-License-Identifier: MIT
# A figure for each dimension that was varied alone: blocks, width, batch, context.
# shellcheck shell=sh disable=SC2154
transformer=$results/bench_transformer.csv
[ -s "$transformer" ] || exit 0
level=variant=kernels warm= # the CPU has no graphs; rows of the warm-up study stand apart
if has graph "$(values_of "$transformer" variant status=ok)"; then level=variant=graph; fi
if has 5 "$(values_of "$transformer" warmup status=ok)"; then warm=warmup=5; fi
without_zero() { echo " $1 " | sed 's/ 0 / /'; } # 0 stands for no value

for sweep in layers:3:depth:blocks 'd_model:3:width:width (d-model)' batch:3:batch:sequences \
    'seq:5:context:context length S (tokens)'; do
    axis=${sweep%%:*} rest=${sweep#*:}
    least=${rest%%:*} rest=${rest#*:}
    name=${rest%%:*} what=${rest#*:}
    # shellcheck disable=SC2086 # no warm-up is no argument
    pick "$transformer" "$axis,precision" "$level" $warm || continue
    points=$(without_zero "$(values "$axis")")
    [ "$(echo "$points" | wc -w)" -ge "$least" ] || continue
    draw "transformer_scaling_$name" "Scaling in $name ($shape)" "axis = '$axis'" "axis_text = '$what'" \
        "points = '$points'" "precisions = '$(values precision)'"
done
