# SPDX-License-Identifier: MIT
# What the figures of data parallelism share. The rows of five benches are in one file here, so that their strategies
# stand in one figure; `main` marks the size with the most rows.
# shellcheck shell=sh disable=SC2154
ddp=$work/ddp.csv
"$report" --ddp "$results" "$ddp"
[ -s "$ddp" ] || exit 0
each_of() { values_of "$ddp" "$@"; }
pick_ddp() { pick "$ddp" label,ranks,seq,precision,gradients "$@"; }

# for_dtypes FUNCTION: FUNCTION NAME TEXT CONDITION ... for each precision and dtype of gradients
for_dtypes() {
    for precision in $(each_of precision main=1); do
        for gradients in $(each_of gradients main=1 "precision=$precision"); do
            "$1" "${precision}_$gradients" "$precision, gradients $gradients" main=1 "precision=$precision" \
                "gradients=$gradients"
        done
    done
}

# for_batches FUNCTION: FUNCTION RANKS NAME TEXT CONDITION ... for each number of ranks and batch, too
for_batches() {
    function=$1
    for_dtypes each_batch
}
each_batch() { # NAME TEXT CONDITION ...
    dtypes=$1 text=$2
    shift 2
    for ranks in $(each_of ranks "$@"); do
        for batch in $(each_of batch "$@" "ranks=$ranks"); do
            "$function" "$ranks" "${ranks}_${dtypes}_b$batch" "$text" "$@" "ranks=$ranks" "batch=$batch"
        done
    done
}
