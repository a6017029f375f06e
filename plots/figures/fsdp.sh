# SPDX-License-Identifier: MIT
# The variants of one model on the same ranks, with the usual options.
# shellcheck shell=sh disable=SC2154
. "$plots/shared/fsdp.sh"
[ -s "$fsdp" ] || exit 0
pick "$fsdp" "variant,$fsdp_axes" mode=train-step || exit 0
several "$(values variant)" || exit 0
usual prefetch free_every gather replicas small reduce_dtype
draw fsdp "A step and its memory ($(values size), S $(values seq), batch $(values batch), $(values ranks) ranks)" \
    "columns=$columns" "wanted=$wanted"
