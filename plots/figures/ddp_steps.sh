# SPDX-License-Identifier: MIT
# A figure for each model, dtypes, number of ranks, batch and context; a bar for each strategy.
# shellcheck shell=sh disable=SC2154
. "$plots/shared/ddp.sh"
steps() { # RANKS KIND TEXT CONDITION ...
    on=$1 kind=$2 of=$3
    shift 3
    for seq in $(each_of seq "$@"); do
        pick_ddp "$@" "seq=$seq" || continue
        several "$(values place)" || continue
        draw "ddp_steps_${kind}_$seq" "A step on $on ranks, S $seq, $of ($shape)"
    done
}
for_batches steps
