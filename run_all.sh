#!/bin/bash
# SPDX-License-Identifier: MIT
# Sets up, builds, runs the benches by their own lists (--list-runs), draws the figures and writes the report of this
# machine; ./run_all.sh --help.
if [ -z "${BASH_VERSION:-}" ]; then # `sh run_all.sh`; what follows is read only later
    command -v bash >/dev/null || { echo 'run_all.sh: bash was not found, and sh is not enough' >&2; exit 2; }
    exec bash "$0" "$@"
fi
set +o posix # bash that was called as sh
set -u
export LC_ALL=C # awk and sort may want commas in numbers elsewhere.
unset CDPATH # With it set, cd goes to another checkout.
cd "$(dirname "$0")" || exit 1

usage() {
    cat <<'END'
usage: ./run_all.sh [options]
Installs what is missing, builds, says what will run and for how long, runs the benches, draws the figures and writes
the report of this machine, results/<machine>/report.html and report.md. The last line sums the machine up in at most
five numbers that you can pass on, and names the page. A bench that fails does not stop the others.

  --quick            at least one row in every section of the report: under 4 minutes on one H200
  --full             everything that the benches list, not only the default: over an hour on one GPU, almost three on several
  --only A,B         only these benches, such as --only roofline,flash
  --match REGEX      only runs whose options match, such as --match 'precision bf16|seq 2048'
  --device cpu|cuda  where to measure (default: cuda if there is a GPU, else cpu)
  --dry-run          say what would run, with its estimated time and memory, and stop
  --resume           continue the run that was interrupted, if GPUs and commit are the same; else begin a new one
  --small            a few tiny cases of each bench, to try everything: half a minute after make; rows go to results/small
  --full-loads       on several GPUs, only steps that fill them and have a peer, then these peers: a quarter of an hour
                     on two GPUs with --only fsdp
  --headlines        the cases of the report's first table, five times each, to see how much runs differ: 4 minutes
                     on one GPU, 10 on several
  --peers            after the benches, measure other programs at the same work, where they are installed: PyTorch,
                     FlashAttention-4, torchtitan, nccl-tests (NCCL_TESTS names its folder); docs/peers.md
  --cases A,B        like --peers, but only steps and attention, and of these only the cases that have all words of A,
                     or all of B
  --peer-seconds N   like --peers, but each peer gets at most N seconds
  --qualify          only find out whether every GPU of this node is as fast as it should be (bench_qualify, a few
                     minutes); exit code 4 if one is not, 77 if nothing can be checked; docs/qualify.md
  --expect N         with --qualify: exit code 4 also if there are not N GPUs
  --list             print what each bench measures and exit
  --help             print this and exit

On one GPU, the benches of several GPUs run small on the CPU backend. On several, those of one GPU run as in --quick:
CUDA_VISIBLE_DEVICES=0 ./run_all.sh measures them in full, into a folder of their own, and --full does both.
SETUP=0 ./run_all.sh installs nothing. Interrupting is safe: rows are written as they are measured.
Exit code: 0 if all benches succeeded; else the largest exit code of a bench (1 failed, 2 bad input, 3 wrong results,
4 a bound missed, 5 no progress); 77 if no bench can run here.
END
}

die_usage() {
    echo "run_all.sh: $*; ./run_all.sh --help lists the options" >&2
    exit 2
}

# Whether a file can be made in a folder, or where it will be made, and written to: it may be somebody else's, of a read-only
# file system or of a full one.
need_writable() { # FOLDER...
    local folder probe why
    for folder; do
        while [ ! -e "$folder" ]; do folder=$(dirname "$folder"); done
        probe=$folder/.run_all.$$
        why=$({ echo probe >"$probe"; } 2>&1)
        [ -z "$why" ] || {
            rm -f "$probe"
            echo "run_all.sh: $folder can't be written: ${why##*: }" >&2
            exit 2
        }
        rm -f "$probe"
    done
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

level=default device='' resume='' only=() match='' qualify='' expect='' peers='' peer_options=() dry='' given=' '
choose_level() {
    [ "$level" = default ] || die_usage "--full, --quick, --small, --full-loads and --headlines exclude each other"
    level=$1
}
while [ $# -gt 0 ]; do
    option=$1 value=''
    case $option in
        --device=* | --only=* | --match=* | --expect=* | --cases=* | --peer-seconds=*) value=${option#*=} option=${option%%=*} ;;
        --device | --only | --match | --expect | --cases | --peer-seconds)
            [ $# -ge 2 ] || die_usage "$option needs a value"
            value=$2
            shift
            ;;
    esac
    shift
    case $option in --device | --only | --match | --expect | --cases | --peer-seconds)
        [[ $given != *" $option "* ]] || die_usage "$option is given twice"
        given+="$option "
        ;;
    esac
    case $option in
        --quick | --full | --small) choose_level "${option#--}" ;;
        --full-loads)
            choose_level load
            peers=1
            ;;
        --headlines) choose_level headline ;;
        --device)
            case $value in cpu | cuda) device=$value ;; *) die_usage "--device is cpu or cuda, not '$value'" ;; esac
            ;;
        --only)
            IFS=, read -ra only <<<"$value"
            [ ${#only[@]} -gt 0 ] || die_usage "--only needs names out of: ${benches[*]}"
            for i in "${!only[@]}"; do
                only[i]=${only[i]#bench_}
                [[ ${only[i]} != *[[:space:]]* && " ${benches[*]} " == *" ${only[i]} "* ]] ||
                    die_usage "--only: there is no bench '${only[i]}'; there are: ${benches[*]}"
                [[ " ${only[*]:0:i} " != *" ${only[i]} "* ]] || die_usage "--only: ${only[i]} is given twice"
            done
            ;;
        --match)
            match=$value
            [[ '' =~ $match ]] 2>/dev/null
            [ $? != 2 ] || die_usage "--match: '$match' is not a regular expression"
            ;;
        --expect)
            [[ $value =~ ^[1-9][0-9]?$ ]] || die_usage "--expect is a number of GPUs, not '$value'"
            expect=$value
            ;;
        --resume) resume=1 ;;
        --peers) peers=1 ;;
        --cases)
            peers=1
            peer_options+=(--cases "$value")
            ;;
        --peer-seconds)
            [[ $value =~ ^[1-9][0-9]*$ ]] || die_usage "--peer-seconds is a whole number, not '$value'"
            peers=1
            peer_options+=(--timeout "$value")
            ;;
        --dry-run) dry=1 ;;
        --qualify) qualify=1 ;;
        --list)
            list
            exit
            ;;
        -h | --help)
            usage
            exit
            ;;
        *) die_usage "unknown option '$option'" ;;
    esac
done

if [ -n "$qualify" ]; then
    [ ${#only[@]} = 0 ] || die_usage "--qualify and --only exclude each other"
    only=(qualify)
fi
[ -z "$expect" ] || [ -n "$qualify" ] || die_usage "--expect goes with --qualify"
[ -z "$resume" ] || [[ " ${only[*]} " != *" qualify "* ]] || die_usage "a node is qualified in one run: leave out --resume"

[ -n "$dry" ] || need_writable build
# Before make: on a fresh machine there may be none yet.
bash common/build/setup.sh
command -v make >/dev/null || {
    echo 'run_all.sh: make was not found; install build-essential' >&2
    exit 1
}
make -j"$(nproc)" --no-print-directory BUILD=build || exit 1
chosen=("${only[@]}")
# Without names, all but those that run only when they are asked for.
[ ${#only[@]} -gt 0 ] || mapfile -t chosen < <(in_order "${benches[@]}" | while read -r name; do
    [ -n "$(fact "$name" apart)" ] || echo "$name"
done)

# ---- where this is ----

where=$("./bench_${benches[0]}" --where ${device:+--device "$device"} 2>/dev/null) || {
    "./bench_${benches[0]}" --where ${device:+--device "$device"} # once more, for what it says
    exit $?
}
here() { sed -n "s/^$1\t//p" <<<"$where"; }
machine=$(here machine) gpus=$(here gpus) commit=$(here commit)
[ "$level" != small ] || machine=small
identity="commit $commit"
# Changed files have no commit: then the programs themselves are compared.
[ "$(here dirty)" = 0 ] || identity+=" with changes $(cat bench_[a-z]* build/lib/libstepbench.so 2>/dev/null | cksum)"
identity+=$'\n'"device $(here device)"$'\n'"gpus $(here gpu | sort | paste -sd ' ')"

# ---- what will run: a line each, in arrays ----

# The options with which the bench is called, and what is behind the name of the run: each repeat is a run of its own.
run_bench=() run_seconds=() run_options=() run_suffix=()
add() { # BENCH SECONDS OPTIONS
    local suffix suffixes=('')
    [ "$level" != headline ] || suffixes=(-1 -2 -3 -4 -5)
    for suffix in "${suffixes[@]}"; do
        run_bench+=("$1") run_seconds+=("$2") run_options+=("$3") run_suffix+=("$suffix")
    done
}

place=${device:+--device $device}
# A node is not qualified by its CPUs: without a GPU, bench_qualify says so.
[ "$gpus" != 0 ] || [ -n "$qualify" ] || place='--device cpu'
beside="--device cpu --machine $machine" # the CPU backend, among the rows of a machine with GPUs

wanted() { # LISTS GPUS: whether a run of these lists that needs so many GPUs is one of this machine and level
    case $1 in
        cpu)
            [ "$gpus" = 0 ] && [[ $level != load && $level != headline ]]
            return
            ;;
    esac
    [ "$gpus" != 0 ] && [ "$2" -le "$gpus" ] || return
    case $level in
        quick) [[ +$1+ == *+quick+* ]] ;;
        full) [[ +$1+ == *+default+* || +$1+ == *+full+* ]] ;;
        load | headline) [[ +$1+ == *+$level+* ]] ;;
        *) if [ "$gpus" -gt 1 ] && [ "$2" = 1 ]; then [[ +$1+ == *+quick+* ]]; else [[ +$1+ == *+default+* ]]; fi ;;
    esac
}

plan_bench() { # NAME
    local lists least seconds options before=${#run_bench[@]} small on=$place
    small=$(fact "$1" small)
    case $level-$gpus in small-* | quick-0) [[ $small =~ $match ]] || return ;; esac
    if [ "$level" = small ]; then
        [[ $gpus != 0 && $small =~ --ranks\ ([0-9]+) && ${BASH_REMATCH[1]} -gt $gpus ]] && on=$beside
        add "$1" 3 "$on $small --csv results/small/bench_$1.csv"
        return
    fi
    if [ "$gpus" = 0 ] && [ "$level" = quick ]; then
        add "$1" 3 "$place $small"
        return
    fi
    while IFS=$'\t' read -r lists least seconds options; do
        options=${options//\{gpus\}/$gpus}
        if wanted "$lists" "$least" && [[ $options =~ $match ]]; then
            options+=${expect:+ --expect $expect}
            if [ "$least" = 0 ] && [ "$gpus" != 0 ]; then options="$beside $options"; else options="$place $options"; fi
            add "$1" "$seconds" "$options"
        fi
    done < <(fact "$1" run)
    [ "${#run_bench[@]}" = "$before" ] && [ -z "$match" ] && [[ $level != load && $level != headline ]] || return
    if [ -z "$(fact "$1" run)" ]; then # it has no lists: its defaults
        add "$1" 60 "$place"
    elif [ "$gpus" != 0 ]; then # it needs more GPUs
        add "$1" 5 "$beside $small"
    fi
}
for name in "${chosen[@]}"; do plan_bench "$name"; done

duration() { # SECONDS
    if [ "$1" -lt 100 ]; then echo "$1 s"; else echo "$((($1 + 30) / 60)) min"; fi
}

# What a bench says of each run by --dry-run, in no order: its exit code, the most that a case holds, in GiB, by closed forms,
# and its first line. Each program takes a moment to load its libraries, so as many as there are cores are asked at a time.
ask_runs() {
    local i cores
    cores=$(nproc)
    for i in "${!run_bench[@]}"; do
        # shellcheck disable=SC2086 # options are words
        {
            said=$("./bench_${run_bench[i]}" ${run_options[i]} --dry-run 2>&1)
            printf '%s\t%s\t%s\t%s\n' "$i" $? \
                "$(sed -n 's/.*(about \([^ ]*\) GiB).*/\1/p; $s/.*/0/p' <<<"$said" | sort -g | tail -n 1)" "${said%%$'\n'*}"
        } &
        [ $(((i + 1) % cores)) != 0 ] || wait
    done
    wait
}

# Options that a bench refuses are not for this number of several GPUs: three cannot share 32 heads.
run_gib=() refused=0 why=''
while IFS=$'\t' read -r i code gib said; do
    run_gib[i]=$gib
    if [ "$code" != 2 ] || [ "$gpus" -le 1 ]; then continue; fi
    unset "run_bench[i]" "run_seconds[i]" "run_options[i]" "run_suffix[i]" "run_gib[i]"
    refused=$((refused + 1)) why=$said
done < <(ask_runs)
run_bench=("${run_bench[@]}") run_seconds=("${run_seconds[@]}") run_options=("${run_options[@]}")
run_suffix=("${run_suffix[@]}") run_gib=("${run_gib[@]}")
total=0
for seconds in "${run_seconds[@]}"; do total=$((total + seconds)); done

print_plan() {
    local name i n seconds
    printf '\n%s: %s%s, commit %s; list: %s\n\n' "$machine" "$([ "$gpus" -le 1 ] || echo "$gpus x ")" "$(here device)" \
        "$commit" "$level"
    printf '  %-22s %5s %9s %12s\n' bench runs about memory
    for name in "${chosen[@]}"; do
        n=0 seconds=0
        for i in "${!run_bench[@]}"; do
            [ "${run_bench[i]}" = "$name" ] || continue
            n=$((n + 1)) seconds=$((seconds + run_seconds[i]))
        done
        [ $n = 0 ] || printf '  %-22s %5d %9s %12s\n' "bench_$name" $n "$(duration $seconds)" \
            "$(for i in "${!run_bench[@]}"; do [ "${run_bench[i]}" != "$name" ] || echo "${run_gib[i]}"; done |
                awk '$1 > most { most = $1 } END { if (most >= 0.05) printf "%.1f GiB", most; else print "-" }')"
    done
    printf '  %-22s %5d %9s\n' together ${#run_bench[@]} "$(duration $total)"
    [ ${#run_bench[@]} != 0 ] || echo "  no run of this list${match:+ that matches '$match'} is for this machine"
    [ "$gpus" != 0 ] || echo '  (times are those of two cores)'
    [ $refused = 0 ] || echo "  $refused left out, which $gpus GPUs can't run, such as $why"
}
print_plan
[ -z "$peers" ] || echo '  and then the peers: 10 minutes or more on one GPU, 20 or more on several; less with --only or --cases'
[ -z "$dry" ] || exit 0

# ---- the run: what it is, and which of its parts are done ----

state=build/logs/run-$machine.txt
logs=build/logs
need_writable build "$logs" "results/$machine" "plots/$machine"
for file in build/.run_all.lock "$state" results/"$machine"/*.csv; do
    [ ! -e "$file" ] || [ -w "$file" ] || {
        echo "run_all.sh: $file can't be written; it belongs to $(stat -c %U "$file")" >&2
        exit 2
    }
done
mkdir -p "$logs"

# Two at once would mix their rows and their lists of what is done. The benches hold it, too, so one that outlives this
# script keeps the next one out; when all have ended, the file that is left keeps out nobody.
exec 9>build/.run_all.lock
if command -v flock >/dev/null; then
    flock -n 9 2>/dev/null
    case $? in
        0) ;;
        1)
            echo 'run_all.sh: another ./run_all.sh of this checkout is running, or a bench that it began' >&2
            exit 1
            ;;
        *) echo 'run_all.sh: this file system has no locks: nothing keeps a second ./run_all.sh out' >&2 ;;
    esac
fi

begin() {
    # Speedups and shares of a ceiling compare rows of one campaign: this one.
    STEPBENCH_RUN=${STEPBENCH_RUN:-$(date -u +%Y%m%dT%H%M%SZ)-all-$$}
    printf '%s\nrun %s\n' "$identity" "$STEPBENCH_RUN" >"$state"
    resume=''
}
if [ -z "$resume" ]; then
    begin
elif [ ! -f "$state" ]; then
    echo "run_all.sh: --resume: no run of $machine was begun here; this begins one"
    begin
elif [ "$(sed '/^run /,$d' "$state")" != "$identity" ]; then
    echo "run_all.sh: --resume: the last run of $machine was on other GPUs or at another commit; this begins a new one"
    begin
else
    STEPBENCH_RUN=$(sed -n 's/^run //p' "$state")
fi
export STEPBENCH_RUN

summary='' results='' last='' worst=0 supported=0
record() { summary+=$(printf '  %-22s %5d %9s %9s' "$1" "$2" "$(duration "$3")" "$4")$'\n'; } # WHAT EXIT SECONDS ABOUT

finish() { # CODE
    local code=$1 text=''
    [ -z "$summary" ] || text=$(printf '\n  %-22s %5s %9s %9s\n%s' bench exit time estimate "$summary")$'\n'
    [ -z "$results" ] || text+="results: $results"$'\n'
    [ -z "$results" ] || [ ! -f "$results/report.html" ] || text+="page: $PWD/$results/report.html"$'\n'
    [ -z "$last" ] || text+="$last"$'\n'
    printf %s "$text" 2>/dev/null || {
        echo "run_all.sh: stdout can't be written: a part of the output is lost" >&2
        [ "$code" != 0 ] || code=1
    }
    exit "$code"
}
trap 'echo; echo "interrupted; ./run_all.sh --resume continues" >&2; finish 130' INT TERM

begun='' done_seconds=0 # when the first run begins; estimated seconds of the runs so far
left() {                      # estimated seconds of the others, by how long the runs so far took
    local rest=$((total - done_seconds)) took=$((SECONDS - begun))
    [ $done_seconds -lt 30 ] || rest=$((rest * took / done_seconds))
    echo $rest
}

take_code() { # EXIT
    if [ "$1" != 77 ]; then
        supported=1
        [ "$1" -le "$worst" ] || worst=$1
    fi
}

# One run; sets code. A run that was over before --resume keeps its exit code.
perform() { # INDEX LOG
    local options=${run_options[$1]} name=${run_bench[$1]} key kept
    key="bench_$name $options${run_suffix[$1]:+ (${run_suffix[$1]#-})}"
    kept=$(awk -v key="$key" '$1 == "done" { code = $2; sub(/^done [0-9]+ /, ""); if ($0 == key) found = code }
        END { print found }' "$state")
    if [ -n "$kept" ]; then
        echo "done before: $key"
        code=$kept total=$((total - run_seconds[$1]))
        return
    fi
    : "${begun:=$SECONDS}"
    printf '\n== [%d/%d, %s gone, about %s left] %s\n' $(($1 + 1)) ${#run_bench[@]} "$(duration $((SECONDS - begun)))" \
        "$(duration "$(left)")" "$key"
    # shellcheck disable=SC2086 # options are words
    STEPBENCH_RUN=$STEPBENCH_RUN${run_suffix[$1]} "./bench_$name" $options ${resume:+--resume} </dev/null | tee -a "$2"
    code=${PIPESTATUS[0]}
    done_seconds=$((done_seconds + run_seconds[$1]))
    case $code in 0 | 3 | 4 | 77) echo "done $code $key" >>"$state" ;; esac # the others may go well next time
}

for name in "${chosen[@]}"; do
    start=$SECONDS log=$logs/bench_$name.log status='' estimate=0
    : >"$log"
    for i in "${!run_bench[@]}"; do
        [ "${run_bench[i]}" = "$name" ] || continue
        estimate=$((estimate + run_seconds[i]))
        perform "$i" "$log"
        take_code "$code"
        # 77 says something only if nothing of the bench could run.
        if [ -z "$status" ] || [ "$status" = 77 ] || { [ "$code" != 77 ] && [ "$code" -gt "$status" ]; }; then
            status=$code
        fi
    done
    [ -n "$status" ] || continue
    record "bench_$name" "$status" $((SECONDS - start)) "$(duration $estimate)"
    path=$(sed -n 's/^results: //p' "$log" | tail -n 1)
    [ -z "$path" ] || results=$(dirname "$path")
done
[ $supported = 1 ] || worst=77
[ -n "$results" ] || [ ! -d "results/$machine" ] || results=results/$machine

# After the benches, so that their rows are there whatever happens to a peer; before the report, which reads both.
if [ -n "$peers" ] && [ -n "$results" ]; then
    printf '\n== peers\n'
    start=$SECONDS
    if command -v python3 >/dev/null; then
        make --no-print-directory BUILD=build lib >/dev/null
        options=(--out "$results")
        [ "$level" != small ] || options+=(--small)
        [ "$level" != load ] || options+=(--full-loads)
        [ ${#only[@]} = 0 ] || options+=(--beside "$(IFS=, && echo "${only[*]}")")
        python3 tests/peers/peers.py "${options[@]}" "${peer_options[@]}" </dev/null
        status=$?
    else
        echo 'python3 was not found: no rows of PyTorch, FlashAttention-4 and nccl-tests'
        status=77
    fi
    record peers "$status" $((SECONDS - start)) ''
    [ "$status" = 77 ] || [ "$status" -le "$worst" ] || worst=$status
fi

if [ -n "$results" ]; then
    for step in 'sh plots/draw.sh' build/report; do
        start=$SECONDS
        if [ ! -x build/report ]; then # it needs SQLite; the rows are there
            [ "$step" != build/report ] || printf '\nno figures and no report: build/report was not built without SQLite (libsqlite3-dev)\n'
            continue
        fi
        printf '\n== %s %s\n' "${step#sh }" "$results"
        said=$($step "$results" </dev/null)
        status=$?
        echo "$said"
        [ "$step" != build/report ] || last=$(tail -n 1 <<<"$said" | grep -v '^wrote ')
        record "${step#sh }" "$status" $((SECONDS - start)) ''
        [ "$status" -le "$worst" ] || worst=$status
    done
fi
finish "$worst"
