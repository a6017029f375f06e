# SPDX-License-Identifier: MIT
# A figure for each model, context and pair of dtypes whose steps were timed on several numbers of ranks.
# shellcheck shell=sh disable=SC2154
. "$plots/shared/fsdp.sh"
[ -s "$fsdp" ] || exit 0
largest_of() { # COLUMN: the largest value at which there are several numbers of ranks
    for value in $(values "$1"); do
        if several "$(values ranks "$1=$value")"; then echo "$value"; fi
    done | tail -n 1
}
ranks_scaling() { # CONDITION ...
    pick "$fsdp" "ranks,batch,$fsdp_axes" mode=train-step recompute=none "$@" || return 0
    weak=$(largest_of batch) strong=$(largest_of global_batch)
    [ -n "$weak$strong" ] || return 0
    usual prefetch free_every gather replicas small reduce_dtype
    draw "ranks_scaling_$(values size)_$(values seq)_$(values precision)_$(values wire_dtype)" \
        "Over ranks ($(values size), S $(values seq), $(values precision), gradients $(values wire_dtype))" \
        "ranks=$(values ranks)" "weak:=${weak:-0}" "strong:=${strong:-0}" \
        "columns=$columns" "wanted=$wanted" \
        "variants=$(ordered 'ddp zero1 zero2 fsdp fsdp-keep hsdp' "$(values variant)")"
}
for size in $(values_of "$fsdp" size status=ok); do
    for seq in $(values_of "$fsdp" seq status=ok "size=$size"); do
        for precision in $(values_of "$fsdp" precision status=ok "size=$size" "seq=$seq"); do
            for wire in $(values_of "$fsdp" wire_dtype status=ok "size=$size" "seq=$seq" "precision=$precision"); do
                ranks_scaling "size=$size" "seq=$seq" "precision=$precision" "wire_dtype=$wire"
            done
        done
    done
done
