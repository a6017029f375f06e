# SPDX-License-Identifier: MIT
# A figure for each pair of dtypes: contexts and strategies that ran on several numbers of ranks.
# shellcheck shell=sh disable=SC2154
. "$plots/shared/ddp.sh"
scaling() { # KIND TEXT CONDITION ...
    kind=$1 of=$2 seqs='' variants=''
    shift 2
    pick_ddp best=1 "$@" || return 0
    for seq in $(values seq); do
        if several "$(values ranks "seq=$seq")"; then seqs="$seqs $seq"; fi
    done
    for variant in $(ordered 'naive flat overlap bucketed zero1' "$(values variant)"); do
        if several "$(values ranks "variant=$variant")"; then variants="$variants $variant"; fi
    done
    [ -z "$seqs" ] || [ -z "$variants" ] || draw "ddp_scaling_$kind" "Tokens a second over ranks, $of ($shape)" \
        "ranks=$(values ranks)" "seqs_shown=$seqs" "variants=$variants"
}
for_dtypes scaling
