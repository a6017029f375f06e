# SPDX-License-Identifier: MIT
# A figure for each model of which the first line was measured: on one GPU, and on each number of ranks, where at least three
# variants are to compare.
# shellcheck shell=sh disable=SC2154
. "$plots/shared/fsdp.sh"
# COLUMN, or for files of the time before it one whose values mean nothing to it.
column_or_none() { if has_column "$1"; then echo "$1"; else echo variant; fi; }
ladder() { # NAME FILE OTHER CONDITION ...: OTHER is the column in which lines differ beside precision and recompute
    as=$1 file=$2 other=$3
    shift 3
    last=kernels
    if has graph "$(values_of "$file" variant status=ok "$@")"; then last=graph; fi
    pick "$file" "precision,$other,recompute,moments,offload,update,$fsdp_axes" mode=train-step "$@" || return 0
    usual prefetch free_every replicas
    of="$(values size), S $(values seq), batch $(values batch)"
    if [ "$other" = grad_dtype ]; then of="$of on each of $(values ranks) ranks"; fi
    draw "$as" "Feature by feature ($of)" "other=$other" "last=$last" "small=$(column_or_none small)" \
        "reduce=$(column_or_none reduce_dtype)" "gather=$(column_or_none gather)" \
        "update=$(column_or_none update)" "moments=$(column_or_none moments)" \
        "offload=$(column_or_none offload)" "columns=$columns" "wanted=$wanted"
}

transformer=$results/bench_transformer.csv
base='variant=none precision=fp32 attention=unfused recompute=none mode=train-step status=ok'
if [ -s "$transformer" ]; then
    # shellcheck disable=SC2086 # conditions are words
    for size in $(values_of "$transformer" size $base); do
        for seq in $(values_of "$transformer" seq "size=$size" $base); do
            ladder "ladder_${size}_$seq" "$transformer" attention "size=$size" "seq=$seq"
        done
    done
fi
base='variant=fsdp precision=bf16 grad_dtype=fp32 recompute=none status=ok'
if [ -s "$fsdp" ]; then
    # shellcheck disable=SC2086
    for ranks in $(values_of "$fsdp" ranks $base); do
        [ "$ranks" -gt 1 ] || continue
        for size in $(values_of "$fsdp" size "ranks=$ranks" $base); do
            if [ "$(values_of "$fsdp" variant "size=$size" "ranks=$ranks" status=ok | wc -w)" -gt 2 ]; then
                ladder "ladder_ranks_${size}_$ranks" "$fsdp" grad_dtype "size=$size" "ranks=$ranks"
            fi
        done
    done
fi
