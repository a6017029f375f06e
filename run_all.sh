#!/bin/bash
# SPDX-License-Identifier: MIT
# Sets up, builds, runs every bench, draws the figures and writes the report of this machine; ./run_all.sh --help.
set -u
cd "$(dirname "$0")" || exit 1

usage() {
    cat <<'END'
usage: ./run_all.sh [options]
Installs what is missing, builds, runs every bench, draws the figures and writes the report of
this machine, results/<machine>/report.html and report.md. The last line is the path of the page.
A bench that fails does not stop the others; the exit code is the worst of them.

  --device cpu|cuda  where to measure (default: cuda if there is a GPU, else cpu)
  --only A,B         only these benches, such as --only roofline,flash
  --resume           skip cases that already have a row: continues an interrupted run
  --small            a few tiny cases of each bench, to try everything in a minute or two; rows go to results/small
  --peers            afterwards measure what others offer for the same work, as far as it is installed: PyTorch,
                     FlashAttention-4, nccl-tests (NCCL_TESTS names its folder); docs/peers.md
  --list             print what each bench measures and exit
  --help             print this and exit

SETUP=0 ./run_all.sh installs nothing. Interrupting is safe: rows are written as they are measured.
Exit code: 0 all benches succeeded; else the largest exit code of a bench (1 failed, 2 bad usage, 3 wrong results,
5 no progress); 77 if no bench can run here.
END
}

die_usage() {
    echo "run_all.sh: $*; ./run_all.sh --help lists the options" >&2
    exit 2
}

benches=()
for source in bench/bench_*.c; do
    name=${source#bench/bench_}
    benches+=("${name%.c}")
done

# What a bench says about itself: fact NAME KEY prints the values of `./bench_NAME --list-runs`, a line each.
fact() { "./bench_$1" --list-runs | sed -n "s/^$2\t//p"; }

in_order() { # NAMES: by the order that the benches give themselves; all of them must be built
    local name
    for name in "$@"; do printf '%s\t%s\n' "$(fact "$name" order)" "$name"; done | sort -n | cut -f2
}

# The question of each bench: from the program, or before the first build from the first paragraph of its source.
list() {
    local name built=1
    for name in "${benches[@]}"; do "./bench_$name" --list-runs >/dev/null 2>&1 || built=''; done
    [ -z "$built" ] || mapfile -t benches < <(in_order "${benches[@]}")
    for name in "${benches[@]}"; do
        printf '%-16s %s\n' "$name" "$(if [ -n "$built" ]; then fact "$name" summary; else
            sed -n '1d; /^ \*$/q; s|^/\* bench_[a-z_0-9]*: *||; s|^ \* *||; p' "bench/bench_$name.c" | paste -sd ' '
        fi)"
    done
}

pass=() small='' only=() peers=''
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
            IFS=, read -ra only <<<"$value"
            [ ${#only[@]} -gt 0 ] || die_usage "--only needs names out of: ${benches[*]}"
            for i in "${!only[@]}"; do
                only[i]=${only[i]#bench_}
                [[ " ${benches[*]} " == *" ${only[i]} "* ]] ||
                    die_usage "--only: there is no bench '${only[i]}'; there are: ${benches[*]}"
            done
            ;;
        --resume) pass+=(--resume) ;;
        --small) small=1 ;;
        --peers) peers=1 ;;
        --list)
            list
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
chosen=("${only[@]}")
[ ${#only[@]} -gt 0 ] || mapfile -t chosen < <(in_order "${benches[@]}")

# Speed-ups and shares of a ceiling compare rows of one campaign: this one.
STEPBENCH_RUN=${STEPBENCH_RUN:-$(date -u +%Y%m%dT%H%M%SZ)-all-$$}
export STEPBENCH_RUN

logs=build/logs
mkdir -p "$logs"
summary='' results='' worst=0 supported=0
record() { summary+=$(printf '  %-22s %5d %7d s' "$1" "$2" "$3")$'\n'; } # WHAT EXIT SECONDS

finish() {
    [ -n "$summary" ] && printf '\n  %-22s %5s %9s\n%s' bench exit time "$summary"
    [ -z "$results" ] || echo "results: $results"
    [ -z "$results" ] || [ ! -f "$results/report.html" ] || echo "page: $PWD/$results/report.html"
    exit "$1"
}
trap 'echo; echo "interrupted; ./run_all.sh --resume continues" >&2; finish 130' INT TERM

for name in "${chosen[@]}"; do
    printf '\n== bench_%s\n' "$name"
    start=$SECONDS
    log=$logs/bench_$name.log
    options=("${pass[@]}")
    # shellcheck disable=SC2207 # words are meant to be split
    [ -z "$small" ] || options+=($(fact "$name" small) --csv "results/small/bench_$name.csv")
    "./bench_$name" "${options[@]}" </dev/null | tee "$log"
    status=${PIPESTATUS[0]}
    if [ -z "$small" ] && head -n 1 "$log" | grep -q '(cuda)'; then # its other runs are for a GPU
        while read -ra more; do
            [ ${#more[@]} -gt 0 ] || continue # the run with its defaults
            "./bench_$name" "${options[@]}" "${more[@]}" </dev/null | tee -a "$log"
            code=${PIPESTATUS[0]}
            [ "$status" != 0 ] || status=$code
        done < <(fact "$name" run)
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

# After the benches, so that their rows are there whatever happens to a peer; before the report, which reads both.
if [ -n "$peers" ] && [ -n "$results" ]; then
    printf '\n== peers\n'
    start=$SECONDS
    if command -v python3 >/dev/null; then
        make --no-print-directory BUILD=build lib >/dev/null
        # shellcheck disable=SC2046 # a word or none
        python3 tests/peers/peers.py --out "$results" $([ -z "$small" ] || echo --small) </dev/null
        status=$?
    else
        echo 'python3 was not found: no rows of PyTorch, FlashAttention-4 and nccl-tests'
        status=77
    fi
    record peers "$status" $((SECONDS - start))
    [ "$status" = 77 ] || [ "$status" -le "$worst" ] || worst=$status
fi

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
