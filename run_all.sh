#!/bin/bash
# SPDX-License-Identifier: MIT
# Sets up, builds, runs every bench, draws the figures and writes the report of this machine; ./run_all.sh --help.
set -u
cd "$(dirname "$0")" || exit 1

usage() {
    cat <<'END'
usage: ./run_all.sh [options]
Installs what is missing, builds, runs every bench, draws the figures and writes results/<machine>/report.md.
A bench that fails does not stop the others; the exit code is the worst of them.

  --device cpu|cuda  where to measure (default: cuda where there is a GPU, else cpu)
  --only A,B         only these benches, such as --only roofline,flash
  --resume           skip cases that already have a row: goes on after an interrupted run
  --small            a few tiny cases of each bench, to try everything in a minute or two; rows go to results/small
  --list             print the benches and exit
  --help             print this and exit

SETUP=0 ./run_all.sh installs nothing. Interrupting is safe: rows are written as they are measured.
Exit code: 0 all benches succeeded; else the largest exit code of a bench (1 failed, 2 bad usage, 3 wrong results,
5 no progress); 77 when no bench could run here.
END
}

die_usage() {
    echo "run_all.sh: $*; ./run_all.sh --help lists the options" >&2
    exit 2
}

# bench_roofline first: the others print their share of the ceilings that it measures.
benches=(roofline attention flash transformer)
for source in bench/bench_*.c; do
    name=${source#bench/bench_} name=${name%.c}
    [[ " ${benches[*]} " == *" $name "* ]] || benches+=("$name")
done

small_options() { # NAME
    case $1 in
        roofline) echo --size 256 --bytes 1M --iters 3 --warmup 1 ;;
        attention) echo --batch 1 --head-dim 16 --seq 128,256 --iters 3 --warmup 1 ;;
        flash) echo --head-dim 64 --seq 128,256 --dtype fp32 --iters 3 --warmup 1 ;;
        transformer) echo --size tiny --seq 16,32 --batch 2 --iters 3 --warmup 1 ;;
        mixed_precision) echo --size tiny --seq 32 --width 768 --iters 3 --warmup 1 ;;
        memory) echo --size tiny --seq 16 ;;
        allreduce) echo --ranks 2 --bytes 1K,1M --dtype fp32 --iters 3 --warmup 1 ;;
        ddp_naive | ddp_flat | ddp_overlap | ddp_bucketed | zero1) echo --ranks 2 --seq 16 --iters 3 --warmup 1 ;;
        accounting) echo --tokens 0,1024 --ranks 2 --bucket 0,25M ;;
        *) echo --iters 3 --warmup 1 ;;
    esac
}

# Options of the runs of a bench beside the one with its defaults, a line each; on a GPU only.
more_runs() { # NAME
    case $1 in
        transformer)
            cat <<'END'
--precision fp32 --fp32-products split
--size small,medium,large,xl,2.7b --seq 512 --precision bf16 --variant none,kernels
--size small --seq 128 --precision bf16 --warmup 0,1,2
--size medium --layers 2,4,8,16,32 --seq 512 --precision bf16
--size small --layers 4 --d-model 512,1024,2048,4096 --seq 512 --precision bf16
--size medium --batch 1,2,8,16 --seq 512 --precision bf16
--size medium --batch 1 --seq 2048,4096,8192,16384,32768 --precision bf16 --recompute none,block
--size 2.7b --seq 1024 --precision bf16 --recompute selective,attn,mlp,block
--size 10b --seq 512,1024 --precision bf16-pure --recompute block
--size 8b --seq 1024 --batch 1 --precision bf16 --recompute block
END
            ;;
        ddp_naive) echo --variant naive --seq 512 --precision bf16 --grad-dtype fp32 --timeline 1 ;;
        ddp_flat) echo --variant flat --seq 512 --precision bf16 --grad-dtype fp32 --timeline 1 ;;
        ddp_overlap) echo --seq 512 --precision bf16 --grad-dtype fp32 --timeline 1 ;;
        ddp_bucketed)
            echo --bucket-mb 0.25,2,5,25,50,200,500 --seq 512 --precision bf16 --grad-dtype fp32
            echo --bucket-mb 10,25,100 --update backward --seq 512 --precision bf16
            echo --bucket-mb 100 --seq 512 --precision bf16 --grad-dtype fp32 --timeline 1
            ;;
        zero1) echo --variant zero1 --seq 512 --precision bf16 --grad-dtype fp32 --timeline 1 ;;
        mixed_precision) echo --variant timing --size large --seq 128,512,1024 ;;
    esac
}

pass=() small='' chosen=("${benches[@]}")
while [ $# -gt 0 ]; do
    option=$1 value=''
    case $option in
        --*=*) value=${option#*=} option=${option%%=*} ;;
        --device | --only)
            [ $# -ge 2 ] || die_usage "$option needs a value"
            value=$2
            shift
            ;;
    esac
    shift
    case $option in
        --device)
            case $value in cpu | cuda) pass+=(--device "$value") ;; *) die_usage "--device is cpu or cuda, not '$value'" ;; esac
            ;;
        --only)
            IFS=, read -ra chosen <<<"$value"
            [ ${#chosen[@]} -gt 0 ] || die_usage "--only needs names, of: ${benches[*]}"
            for i in "${!chosen[@]}"; do
                chosen[i]=${chosen[i]#bench_}
                [[ " ${benches[*]} " == *" ${chosen[i]} "* ]] ||
                    die_usage "--only: there is no bench '${chosen[i]}', only: ${benches[*]}"
            done
            ;;
        --resume) pass+=(--resume) ;;
        --small) small=1 ;;
        --list)
            for name in "${benches[@]}"; do # its question is the first paragraph of its header comment
                printf '%-12s %s\n' "$name" "$(sed -n '1d; /^ \*$/q; s|^/\* bench_[a-z_0-9]*: *||; s|^ \* *||; p' \
                    "bench/bench_$name.c" | paste -sd ' ')"
            done
            exit 0
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        *) die_usage "unknown option '$option'" ;;
    esac
done

# Before make: on a fresh machine there may be none yet.
bash common/build/setup.sh
command -v make >/dev/null || {
    echo 'run_all.sh: make was not found; install build-essential' >&2
    exit 1
}
make -j"$(nproc)" --no-print-directory BUILD=build || exit 1

logs=build/logs
mkdir -p "$logs"
summary='' results='' worst=0 supported=0
record() { summary+=$(printf '  %-22s %5d %7d s' "$1" "$2" "$3")$'\n'; } # WHAT EXIT SECONDS

finish() {
    [ -n "$summary" ] && printf '\n  %-22s %5s %9s\n%s' bench exit time "$summary"
    [ -z "$results" ] || echo "results: $results"
    exit "$1"
}
trap 'echo; echo "interrupted; ./run_all.sh --resume goes on" >&2; finish 130' INT TERM

for name in "${chosen[@]}"; do
    printf '\n== bench_%s\n' "$name"
    start=$SECONDS
    log=$logs/bench_$name.log
    options=("${pass[@]}")
    # shellcheck disable=SC2207 # words are meant to be split
    [ -z "$small" ] || options+=($(small_options "$name") --csv "results/small/bench_$name.csv")
    "./bench_$name" "${options[@]}" </dev/null | tee "$log"
    status=${PIPESTATUS[0]}
    if [ -z "$small" ] && head -n 1 "$log" | grep -q '(cuda)'; then
        while read -ra more; do
            "./bench_$name" "${options[@]}" "${more[@]}" </dev/null | tee -a "$log"
            code=${PIPESTATUS[0]}
            [ "$status" != 0 ] || status=$code
        done < <(more_runs "$name")
    fi
    record "bench_$name" "$status" $((SECONDS - start))
    path=$(sed -n 's/^results: //p' "$log" | tail -n 1)
    [ -z "$path" ] || results=$(dirname "$path")
    if [ "$status" != 77 ]; then
        supported=1
        [ "$status" -le "$worst" ] || worst=$status
    fi
done
[ $supported = 1 ] || worst=77

if [ -n "$results" ]; then
    for step in 'sh plots/draw.sh' build/report; do
        start=$SECONDS
        printf '\n== %s %s\n' "${step#sh }" "$results"
        $step "$results" </dev/null
        status=$?
        record "${step#sh }" "$status" $((SECONDS - start))
        [ "$status" -le "$worst" ] || worst=$status
    done
fi
finish "$worst"
