# SPDX-License-Identifier: MIT
# The figures of data parallelism; a part of plots/draw.sh, with whose functions and variables it runs. The rows of five
# benches are in one file here, so that their strategies stand in one figure; `main` marks the size with the most rows.
# shellcheck shell=sh disable=SC2154
ddp=$work/ddp.csv
"$report" --ddp "$results" "$ddp"
each_of() { "$report" --values "$ddp" "$@"; }
pick_ddp() { pick "$ddp" label,ranks,seq,precision,gradients "$@"; }

# steps RANKS KIND TEXT [COLUMN=VALUE ...]: a figure a context, a bar a strategy
steps() {
    on=$1 kind=$2 of=$3
    shift 3
    for seq in $(each_of seq "$@"); do
        pick_ddp "$@" "seq=$seq" || continue
        several "$(values place)" || continue
        draw ddp_steps.gp "ddp_steps_${kind}_$seq" "A step on $on ranks, S $seq, $of ($shape)"
    done
}

# buckets RANKS KIND TEXT [COLUMN=VALUE ...]: a figure for each set of options that buckets of several sizes ran with
buckets() {
    on=$1 kind=$2 of=$3
    shift 3
    for how in $(each_of how "$@" variant=bucketed); do
        pick_ddp "$@" variant=bucketed "how=$how" || continue
        several "$(values bucket_mb)" || continue
        with='' suffix=''
        [ "$how" = plain ] || with=", $(echo "$how" | tr - ' ')" suffix=_$how
        draw ddp_buckets.gp "ddp_buckets_$kind$suffix" "Buckets on $on ranks, $of$with ($shape)" \
            "seqs_shown = '$(values seq)'"
    done
}

# scaling KIND TEXT [COLUMN=VALUE ...]: contexts and strategies that ran on several numbers of ranks
scaling() {
    kind=$1 of=$2 seqs='' variants=''
    shift 2
    pick_ddp best=1 "$@" || return 0
    for seq in $(values seq); do
        several "$(values ranks "seq=$seq")" && seqs="$seqs $seq"
    done
    for variant in $(ordered 'naive flat overlap bucketed zero1' "$(values variant)"); do
        several "$(values ranks "variant=$variant")" && variants="$variants $variant"
    done
    [ -z "$seqs" ] || [ -z "$variants" ] || draw ddp_scaling.gp "ddp_scaling_$kind" \
        "Tokens a second over ranks, $of ($shape)" "ranks = '$(values ranks)'" "seqs_shown = '$seqs'" \
        "variants = '$variants'"
}

# What is held depends neither on context nor on batch: those of the first row stand for all.
sharding() {
    panels='' seq=$(each_of seq variant=zero1 main=1) batch=$(each_of batch variant=zero1 main=1)
    pick_ddp main=1 best=1 "seq=${seq%% *}" "batch=${batch%% *}" || return 0
    for precision in $(ordered 'fp32 tf32 bf16 bf16-pure fp16' "$(values precision variant=zero1)"); do
        for gradients in $(values gradients variant=zero1 "precision=$precision"); do
            panels="$panels $precision/$gradients"
        done
    done
    [ -z "$panels" ] || draw zero1_memory.gp zero1_memory "Memory of a rank after an update ($shape)" \
        "panels = '$panels'" "ranks = '$(values ranks variant=zero1)'" \
        "ways = '$(ordered 'unsharded zero1 zero1-broadcast' "$(values variant)")'"
}

if [ -s "$ddp" ]; then
    for precision in $(each_of precision main=1); do
        for gradients in $(each_of gradients main=1 "precision=$precision"); do
            dtypes="$precision, gradients $gradients"
            set -- main=1 "precision=$precision" "gradients=$gradients"
            for ranks in $(each_of ranks "$@"); do
                for batch in $(each_of batch "$@" "ranks=$ranks"); do
                    name=${ranks}_${precision}_${gradients}_b$batch
                    steps "$ranks" "$name" "$dtypes" "$@" "ranks=$ranks" "batch=$batch"
                    name=${ranks}_${precision}_${gradients}_b$batch # draw sets it, too
                    buckets "$ranks" "$name" "$dtypes" "$@" "ranks=$ranks" "batch=$batch"
                done
            done
            scaling "${precision}_$gradients" "$dtypes" "$@"
        done
    done
    sharding
fi
