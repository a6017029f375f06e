#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: run_tests.sh LOG_FOLDER [lint] cmocka-program...
# Runs every program, TEST_JOBS at a time (default: two more than cores, since ranks mostly wait for each other), prints a
# line for each and the whole output of those that fail, and ends with the plain line "N passed, N failed" (", N skipped").
# A program that dies, runs no test, or hangs for ten minutes, counts as one failed test; one whose subject this build lacks
# says so by a skipped test.
set -u
export LC_ALL=C

logs=$1
shift
mkdir -p "$logs"
most=${TEST_JOBS:-$(($(nproc) + 2))}
# Programs run side by side and may start ranks: threads of OpenBLAS would spin while they wait for each other's cores.
export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
counts=$(mktemp -d)
trap 'rm -rf "$counts"' EXIT
# Ctrl-C reaches neither what runs in the background nor what timeout puts into a process group of its own.
trap 'trap "" INT TERM; kill $(jobs -p) 2>/dev/null; wait; exit 130' INT TERM

# What these assert of durations needs a core of their own; `patient` mostly waits for timeouts, so that the others run
# meanwhile, one less at a time.
alone=' test_sampler test_measure test_clock test_lanes '
patient=' test_launch '
# These take longest, and go first: the last one would run alone.
long=' test_strange_files test_fsdp test_example test_course test_columns_tp test_float8_step test_figures_seen test_damaged_files '

# From cmocka 1.1.7 on, the program's name may stand before the number.
count() { sed -nE "s/.*\[  $1 *\] ([^ ]+: )?([0-9]+) test.*/\2/p" "$2" | awk '{ n += $1 } END { print n + 0 }'; } # WORD LOG

# Ends what timeout runs. timeout alone would leave a program that it has only just started.
end() {
    kill -- -"$1" 2>/dev/null || kill "$1" 2>/dev/null # its process group, once there is one
    wait
    exit 1
}

# One program: its log, then its line and its counts.
one() { # PROGRAM
    local program=$1 name log start=$SECONDS status stop ok bad skip
    name=$(basename "$program")
    log=$logs/${program//\//-}.log # two rooms may have programs of one name
    if [ "$program" = lint ]; then
        bash "$(dirname "$0")/lint.sh" >"$log" 2>&1
        status=$?
        ok=$(sed -n 's/^lint: \([0-9]*\) rules hold.*/\1/p' "$log") ok=${ok:-0}
        bad=$(sed -n 's/.* \([0-9]*\) broken$/\1/p' "$log") bad=${bad:-0}
        skip=0
    else
        stop=
        trap 'stop=1' INT TERM # from before there is something to end
        timeout -k 10 600 "$program" >"$log" 2>&1 </dev/null &
        trap 'end $!' INT TERM
        [ -z "$stop" ] || end $!
        wait $!
        status=$?
        ok=$(count PASSED "$log") bad=$(count FAILED "$log") skip=$(count SKIPPED "$log")
    fi
    if [ "$status" != 0 ] && [ "$bad" = 0 ]; then bad=1; fi
    if [ $((ok + bad + skip)) = 0 ]; then
        echo 'it ran no test, and skipped none' >>"$log"
        bad=1
    fi
    {
        flock 9
        echo "$ok $bad $skip" >>"$counts/all"
        if [ "$bad" = 0 ]; then
            printf '  ok    %-28s %4d passed%s  %d s\n' "$name" "$ok" "$([ "$skip" = 0 ] || echo ", $skip skipped")" \
                $((SECONDS - start))
            [ "$skip" = 0 ] || grep -E '^\[  SKIPPED \] [^0-9 ][^ ]*$' "$log" | sort -u | sed 's/^/        /'
        else
            printf '  FAIL  %-28s %4d passed, %d failed (exit %d)\n' "$name" "$ok" "$bad" "$status"
            sed 's/^/        /' "$log"
        fi
    } 9>"$counts/lock"
}

# Whether another program may start.
is_room() {
    local limit=$most
    if [ -n "$patient_pid" ] && kill -0 "$patient_pid" 2>/dev/null; then limit=$((most - 1)); fi
    [ "$(jobs -rp | wc -l)" -lt "$limit" ]
}

: >"$counts/all"
patient_pid=
for program; do
    case $patient in *" $(basename "$program") "*)
        one "$program" &
        patient_pid=$!
        ;;
    esac
done
first=() others=()
for program; do
    case "$alone$patient" in *" $(basename "$program") "*) continue ;; esac
    case $long in *" $(basename "$program") "*) first+=("$program") ;; *) others+=("$program") ;; esac
done
for program in "${first[@]}" "${others[@]}"; do
    until is_room; do wait -n; done
    one "$program" &
done
wait
for program; do
    case $alone in *" $(basename "$program") "*)
        one "$program" &
        wait
        ;;
    esac
done

awk -v programs=$# '{ ok += $1; bad += $2; skip += $3 }
    END { bad += programs - NR # one that left no counts
          printf "%d passed, %d failed%s\n", ok, bad, skip ? ", " skip " skipped" : ""; exit bad > 0 }' "$counts/all"
