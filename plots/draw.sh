#!/bin/sh
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
        if gnuplot -e "format = '$format'; output = '$work/figure'; load '$work/variables.gp'" "$plots/$script" \
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

echo "$drawn figures in $out"
exit $failed
