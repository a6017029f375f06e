#!/bin/sh
# SPDX-License-Identifier: MIT
# Draws every figure of a machine: plots/draw.sh RESULTS_DIR [OUT_DIR]. Reads RESULTS_DIR/bench_*.csv, writes .svg and
# .png to OUT_DIR, by default plots/<name of RESULTS_DIR>/. REPORT is the report program, by default build/report.
set -eu
plots=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ] || [ $# -gt 2 ] || [ ! -d "$1" ]; then
    echo "usage: plots/draw.sh RESULTS_DIR [OUT_DIR], such as plots/draw.sh results/h200-x1" >&2
    exit 2
fi
results=$(cd "$1" && pwd)
out=${2:-$plots/$(basename "$results")}
report=${REPORT:-$plots/../build/report}
if ! command -v gnuplot >/dev/null 2>&1; then
    echo "plots/draw.sh: gnuplot is missing, so no figures were drawn; on Debian or Ubuntu: apt-get install gnuplot-nox"
    exit 0
fi
if [ ! -x "$report" ]; then
    echo "plots/draw.sh: $report is missing; build it with make" >&2
    exit 1
fi
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
data=$work/data.csv
drawn=0
failed=0

# pick FILE AXES [COLUMN=VALUE ...]: rows for a figure into $data; sets caption and shape; false when there are none.
pick() {
    file=$1 axes=$2
    shift 2
    "$report" --tidy "$file" "$data" --axes "$axes" status=ok "$@" >"$work/caption"
    caption=$(sed -n 1p "$work/caption")
    shape=$(sed -n 2p "$work/caption")
    [ -n "$caption" ]
}

# values COLUMN [COLUMN=VALUE ...]: the distinct ones in $data, of the rows that have the values.
values() { "$report" --values "$data" "$@"; }

# A text as a gnuplot string.
quoted() { printf "'%s'" "$(printf %s "$1" | sed "s/'/''/g")"; }

# draw SCRIPT NAME TITLE [VARIABLE=EXPRESSION ...]
draw() {
    script=$1 name=$2 title=$3
    shift 3
    {
        echo "folder = $(quoted "$plots"); data = $(quoted "$data")"
        echo "title = $(quoted "$title"); caption = $(quoted "$caption")"
        for assignment in "$@"; do echo "$assignment"; done
    } >"$work/variables.gp"
    for format in svg png; do
        if gnuplot -e "format = '$format'; output = '$work/figure'; load '$work/variables.gp'" "$plots/figures/$script" \
            >"$work/log" 2>&1 && [ -s "$work/figure" ]; then
            mv "$work/figure" "$out/$name.$format"
            drawn=$((drawn + 1))
        else
            echo "plots/draw.sh: $name.$format could not be drawn:" >&2
            sed 's/^/    /' "$work/log" >&2
            failed=1
        fi
    done
}

# The measured GEMM ceiling of the rows in $data; 0 when there is none.
ceiling() {
    most=$(values ceiling_tflops | tr ' ' '\n' | grep -v nan | sort -g | tail -n 1)
    echo "${most:-0}"
}
each_dtype() { "$report" --values "$1" dtype; }
several() { case $1 in *" "*) ;; *) return 1 ;; esac } # values; one length makes no curve

roofline=$results/bench_roofline.csv
if [ -s "$roofline" ] && pick "$roofline" dtype,size,bytes,pair; then
    copies=
    for variant in $(values variant); do
        case $variant in copy*) copies="$copies $variant" ;; esac
    done
    draw roofline.gp roofline "Ceilings of the machine" "dtypes = '$(values dtype variant=gemm)'" \
        "sizes = '$(values size variant=gemm)'" "copies = '$copies'" "bytes = '$(values bytes variant=copy)'"
fi
flash=$results/bench_flash.csv
if [ -s "$flash" ]; then
    for dtype in $(each_dtype "$flash"); do
        pick "$flash" seq,head_dim,dtype "dtype=$dtype" || continue
        of="$dtype ($shape)"
        set -- "seqs = '$(values seq)'" "dims = '$(values head_dim)'"
        if several "$(values seq)"; then
            draw flash_latency.gp "flash_latency_$dtype" "Attention latency, $of" "$@"
            draw flash_tflops.gp "flash_tflops_$dtype" "Attention throughput, $of" "$@" "ceiling = $(ceiling)"
            draw flash_memory.gp "flash_memory_$dtype" "Attention peak memory, $of" "$@"
        fi
        pick "$flash" seq,head_dim,dtype "dtype=$dtype" variant=flash || continue
        complete=1
        case " $(values speedup_fwd) " in *" nan "*) complete=0 ;; esac
        draw flash_speedup.gp "flash_speedup_$dtype" "Speed-up of flash over unfused, $of" "seqs = '$(values seq)'" \
            "dims = '$(values head_dim)'" "complete = $complete"
    done
fi

attention=$results/bench_attention.csv
if [ -s "$attention" ]; then
    for dtype in $(each_dtype "$attention"); do
        pick "$attention" seq,head_dim,dtype "dtype=$dtype" || continue
        several "$(values seq)" || continue
        of="$dtype ($shape, 1 head)"
        set -- "seqs = '$(values seq)'" "dims = '$(values head_dim)'" "variants = '$(values variant)'"
        draw attention_latency.gp "attention_latency_$dtype" "Attention latency, $of" "$@"
        draw attention_memory.gp "attention_memory_$dtype" "Attention memory, $of" "$@"
    done
fi

# Of a list of sizes of models, those that are there, in their order.
sizes_of() {
    for size in tiny small medium large xl 2.7b xl-2026 10b 8b; do
        case " $1 " in *" $size "*) printf '%s ' "$size" ;; esac
    done
}
at_least() { # N VALUES: of which 0 stands for no value
    n=$1 found=0
    for value in $2; do [ "$value" = 0 ] || found=$((found + 1)); done
    [ "$found" -ge "$n" ]
}
without_zero() { echo " $1 " | sed 's/ 0 / /'; }

transformer=$results/bench_transformer.csv
if [ -s "$transformer" ]; then
    warm= # rows of the warm-up study stand apart
    case " $("$report" --values "$transformer" warmup status=ok) " in *" 5 "*) warm=warmup=5 ;; esac
    level=graph # the CPU has none
    case " $("$report" --values "$transformer" variant status=ok) " in *" graph "*) ;; *) level=kernels ;; esac
    for precision in $("$report" --values "$transformer" precision); do
        pick "$transformer" size,seq,precision "precision=$precision" "variant=$level" $warm || continue
        several "$(values seq)" || continue
        draw transformer_time.gp "transformer_time_$precision" "Training step, $precision ($shape)" \
            "seqs = '$(values seq)'" "sizes = '$(sizes_of "$(values size)")'"
    done
    if pick "$transformer" size,seq,precision "variant=$level" $warm && several "$(values seq)"; then
        set -- "seqs = '$(values seq)'" "sizes = '$(sizes_of "$(values size)")'"
        share=mfu_causal_pct
        [ "$(values mfu_causal_pct)" != nan ] || share=ceiling_pct
        [ "$(values $share)" = nan ] ||
            draw transformer_mfu.gp transformer_mfu "Share of the GPU's peak in a step ($shape)" "$@" \
                "precisions = '$(values precision)'" "share = '$share'"
        case " $(values precision) " in *" fp32 "*)
            case " $(values precision) " in *" bf16 "*)
                draw transformer_speedup.gp transformer_speedup "bf16 against fp32, training step ($shape)" "$@" \
                    "slow = 'fp32'" "fast = 'bf16'"
                ;;
            esac
            ;;
        esac
    fi
    for precision in $("$report" --values "$transformer" precision); do
        pick "$transformer" size,seq,precision "precision=$precision" $warm || continue
        several "$(values variant)" || continue
        lengths=
        for seq in $(values seq); do # those of which several levels were measured
            several "$(values variant "seq=$seq")" && lengths="$lengths $seq"
        done
        sizes=
        for size in $(sizes_of "$(values size)"); do
            several "$(values variant "size=$size")" && sizes="$sizes $size"
        done
        levels=
        for each in none kernels graph; do
            case " $(values variant) " in *" $each "*) levels="$levels $each" ;; esac
        done
        [ -z "$lengths" ] || draw transformer_fusion.gp "transformer_fusion_$precision" \
            "What fusion gives, $precision ($shape)" "lengths = '$lengths'" "sizes = '$sizes'" "variants = '$levels'"
    done
    for sweep in layers:3:depth d_model:3:width batch:3:batch seq:5:context; do
        axis=${sweep%%:*} rest=${sweep#*:}
        pick "$transformer" "$axis,precision" "variant=$level" $warm || continue
        at_least "${rest%:*}" "$(values "$axis")" || continue
        case $axis in layers) what=blocks ;; d_model) what="width (d-model)" ;; batch) what=sequences ;;
            *) what="context length S (tokens)" ;; esac
        draw transformer_scaling.gp "transformer_scaling_${rest#*:}" "Scaling in ${rest#*:} ($shape)" "axis = '$axis'" \
            "axis_text = '$what'" "points = '$(without_zero "$(values "$axis")")'" "precisions = '$(values precision)'"
    done
    for precision in $("$report" --values "$transformer" precision); do
        pick "$transformer" size,warmup,precision "precision=$precision" "variant=$level" || continue
        several "$(values warmup)" || continue
        sizes=
        for size in $(sizes_of "$(values size)"); do
            several "$(values warmup "size=$size")" && sizes="$sizes $size"
        done
        [ -z "$sizes" ] || draw transformer_warmup.gp "transformer_warmup_$precision" \
            "Warm-up and the mean, $precision ($shape)" "sizes = '$sizes'" "counts = '$(values warmup)'"
    done
fi

mixed=$results/bench_mixed_precision.csv
if [ -s "$mixed" ]; then
    if pick "$mixed" width,norm,dtype,statistics variant=norm magnitude=1 && several "$(values width)"; then
        draw mixed_norm.gp mixed_norm "Norms with statistics in 16 bits" "widths = '$(values width)'" \
            "dtypes = '$(values dtype)'" "statistics = '$(values statistics)'" "norms = '$(values norm)'"
    fi
    for seq in $("$report" --values "$mixed" seq variant=timing status=ok); do
        pick "$mixed" size,precision variant=timing "seq=$seq" || continue
        several "$(values size)" || continue
        precisions=
        for each in tf32 bf16 bf16-pure fp16; do
            case " $(values precision) " in *" $each "*) precisions="$precisions $each" ;; esac
        done
        draw mixed_speedup.gp "mixed_speedup_$seq" "Speed-up over fp32, context $seq, batch $(values batch)" \
            "sizes = '$(sizes_of "$(values size)")'" "precisions = '$precisions'"
    done
fi

memory=$results/bench_memory.csv
if [ -s "$memory" ]; then
    level=graph # the CPU has none
    case " $("$report" --values "$memory" variant status=ok) " in *" graph "*) ;; *) level=kernels ;; esac
    for precision in $("$report" --values "$memory" precision); do
        pick "$memory" seq,precision,mode "precision=$precision" "variant=$level" || continue
        draw memory_peak.gp "memory_peak_$precision" "Peak memory, $precision ($shape)" "lengths = '$(values seq)'" \
            "modes = '$(values mode)'"
        longest=$(values seq)
        longest=${longest##* }
        rm -f "$work"/timeline-*
        files='' panels=''
        for mode in forward forward-backward train-step; do # a name of its own: gnuplot's lists are parted by blanks
            timeline=$results/memory/$(values events "mode=$mode" "seq=$longest")
            [ -f "$timeline" ] || continue
            cp "$timeline" "$work/timeline-$mode"
            files="$files $work/timeline-$mode" panels="$panels $mode"
        done
        [ -z "$files" ] || draw memory_timeline.gp "memory_timeline_$precision" \
            "Memory of a step at S $longest, $precision ($shape)" "files = $(quoted "$files")" "panels = '$panels'"
    done
fi

# ordered "NAMES" "VALUES": those of the names that are among the values.
ordered() {
    for each in $1; do
        case " $2 " in *" $each "*) printf '%s ' "$each" ;; esac
    done
}
accounting=$results/bench_accounting.csv
if [ -s "$accounting" ]; then # a question's rows are told by the parameters that have no value there
    if pick "$accounting" device_memory,tokens x= model= && several "$(values tokens)" && several "$(values variant)"; then
        draw accounting_fsdp.gp accounting_fsdp "Devices for a model ($shape)" "tokens = '$(values tokens)'" \
            "devices = '$(values device_memory)'"
    fi
    if pick "$accounting" batch,way,blocks tokens= form= model= && several "$(values way variant=batch)" &&
        several "$(values at_tokens variant=compute_bound)" &&
        [ "$(values tokens_least variant=compute_bound)" != nan ]; then
        of="d $(values d_model), F $(values d_ff), X $(values x), Y $(values y)"
        ways="as-given overlap-axes more-axes best-whole-split best-split 8bit-weights 8bit-all keep-weights"
        ways="$ways faster-link context"
        draw accounting_bound.gp accounting_bound "Bound by compute or by communication ($of)" \
            "ways = '$(ordered "$ways" "$(values way variant=batch)")'"
    fi
    if pick "$accounting" ranks,kappa,bucket variant=buckets grad_bits=16 && several "$(values bucket)"; then
        draw accounting_buckets.gp accounting_buckets \
            "Overhead of buckets: $(values model), 16-bit gradients, $(values overhead) us a call" \
            "ranks = '$(values ranks)'" "kappas = '$(values kappa)'"
    fi
    if pick "$accounting" ranks,recipe,strategy variant=zero && several "$(values strategy)"; then
        draw accounting_zero.gp accounting_zero "Memory of a rank: $(values model)" "ranks = '$(values ranks)'" \
            "recipes = '$(ordered 'fp32 bf16 bf16-grad32' "$(values recipe)")'" \
            "stages = '$(ordered 'ddp zero1 zero2 zero3' "$(values strategy)")'"
    fi
fi

allreduce=$results/bench_allreduce.csv
if [ -s "$allreduce" ]; then
    # collective NAME TITLE BY SUFFIX [COLUMN=VALUE ...]: one figure; BY is the column that has a colour a value, of
    # $only where that says which
    collective() {
        name=$1 title=$2 by=$3 suffix=$4
        shift 4
        pick "$allreduce" "bytes,mode,dtype,$by" "$@" && several "$(values bytes)" || return 0
        modes=
        for each in eager graph; do
            case " $(values mode) " in *" $each "*) modes="$modes $each" ;; esac
        done
        draw allreduce_sizes.gp "allreduce_$name" "$title ($shape)" "by = '$by'" "suffix = '$suffix'" \
            "series = '$(ordered "${only:-$(values "$by")}" "$(values "$by")")'" "sizes = '$(values bytes)'" "modes = '$modes'"
    }
    only=
    for dtype in $(each_dtype "$allreduce"); do
        place=1
        case " $("$report" --values "$allreduce" in_place status=ok "dtype=$dtype") " in *" 1 "*) ;; *) place=0 ;; esac
        collective "ranks_$dtype" "All-reduce, $dtype" ranks ' ranks' "dtype=$dtype" "in_place=$place" variant=all-reduce
        most=$("$report" --values "$allreduce" ranks status=ok "dtype=$dtype")
        most=${most##* }
        only='all-reduce all-gather reduce-scatter broadcast'
        collective "ops_$dtype" "Collectives, $dtype" variant '' "dtype=$dtype" "in_place=$place" "ranks=$most"
        only='all-reduce one-shot two-shot'
        case " $("$report" --values "$allreduce" variant status=ok "dtype=$dtype" "ranks=$most") " in *-shot*)
            collective "own_$dtype" "All-reduce of the library and ours, $dtype" variant '' "dtype=$dtype" \
                "in_place=$place" "ranks=$most"
            ;;
        esac
        only=
    done
fi

# shellcheck source=plots/figures/ddp.sh
. "$plots/figures/ddp.sh"

# Recorded steps of data parallelism: a file a recording, from the simplest strategy to the best, then any others.
set --
for name in naive flat overlap bucketed zero1; do
    [ ! -s "$results/timeline/$name.csv" ] || set -- "$@" "$results/timeline/$name.csv"
done
for file in "$results"/timeline/*.csv; do
    case ${file##*/} in naive.csv | flat.csv | overlap.csv | bucketed.csv | zero1.csv) continue ;; esac
    [ ! -s "$file" ] || set -- "$@" "$file"
done
files='' labels='' sums='' count=0 rank=0 device=''
for file; do # the comment of its sums: "# rank 0 of LABEL: 12.345 ms; compute ..."
    about=$(sed -n "s/^# rank $rank of \(.*; idle [^ ]* ms\).*/\1/p" "$file" | head -n 1)
    [ -n "$about" ] || continue
    count=$((count + 1))
    cp "$file" "$work/recording-$count" # a name of its own: gnuplot's lists are parted by blanks
    files="$files $work/recording-$count"
    labels="$labels${labels:+, }$(quoted "${about%: *ms; compute *}")"
    short=$(printf '%s\n' "${about##*: }" |
        awk '{ printf "%.1f ms, communication %.1f, exposed %.1f", $1, $7, $12 }') # of "12.345 ms; compute 6.7 ms; ..."
    sums="$sums${sums:+, }$(quoted "$short")"
done
if [ "$count" -gt 0 ]; then
    for key in cpu gpu_name; do
        of=$("$report" --values "$results/machine.csv" value "key=$key" 2>/dev/null) || of=
        [ -z "$of" ] || device=$of
    done
    caption="$(basename "$results")${device:+, $device}, rank $rank"
    draw ddp_timeline.gp ddp_timeline "Recorded training steps" "files = $(quoted "$files")" \
        "array labels[$count] = [$labels]" "array sums[$count] = [$sums]" "rank = $rank"
fi

echo "$drawn figures in $out"
exit $failed
