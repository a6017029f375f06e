#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: run_gpu_tests.sh --gpu-present    exits 77 with one sentence when there is no GPU
#        run_gpu_tests.sh program...      runs each GPU test program, a process for each op and dtype, and its --small form
#                                         under compute-sanitizer's memcheck and racecheck; several side by side, on all
#                                         GPUs; ends with the plain line "N passed, N failed"
# From the environment: HAVE_CUDA CUDA_HOME SANITIZER_FLAGS, MODEL_TESTS (programs of make test that run on a GPU, too),
# GPU_TEST_JOBS (tests side by side; default: 6 a GPU, and no more than cores)
set -u

unsupported() {
    echo "make test-gpu: $*" >&2
    exit 77
}
if [ "${1:-}" = --gpu-present ]; then
    ls /dev/nvidia[0-9]* >/dev/null 2>&1 || nvidia-smi -L 2>/dev/null | grep -q '^GPU' ||
        unsupported 'no NVIDIA GPU on this machine; make test runs the tests that need none'
    exit 0
fi
[ -n "${HAVE_CUDA:-}" ] || unsupported 'built without CUDA (see make print-config), so there is no CUDA op to test'

sanitizer=$(command -v compute-sanitizer) || for dir in bin compute-sanitizer extras/compute-sanitizer; do
    [ -x "$CUDA_HOME/$dir/compute-sanitizer" ] && sanitizer=$CUDA_HOME/$dir/compute-sanitizer && break
done

# The GPUs to use, one after the other, and how many tests run side by side: they check results and time nothing.
IFS=, read -ra gpus <<<"${CUDA_VISIBLE_DEVICES:-$(nvidia-smi -L | sed -n 's/^GPU \([0-9]*\):.*/\1/p' | paste -sd,)}"
most=${GPU_TEST_JOBS:-$((6 * ${#gpus[@]}))} # more processes only wait for their turn on the GPU
[ -n "${GPU_TEST_JOBS:-}" ] || [ "$most" -le "$(nproc)" ] || most=$(nproc)
# The references are the CPU's products: a BLAS with a thread for each core in each test only waits for itself.
export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}

started=0 running=0
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
# Ctrl-C does not reach what runs in the background.
trap 'trap "" INT TERM; kill $(jobs -p) 2>/dev/null; wait; exit 130' INT TERM

# One test, in the background: its log, then its verdict as a file's name.
one() { # TITLE COMMAND...
    local title=$1 log=$logs/$started.log status stop start=$SECONDS
    shift
    stop=
    trap 'stop=1' INT TERM # from before there is something to end
    "$@" </dev/null >"$log" 2>&1 &
    trap 'kill $! 2>/dev/null; wait; exit 1' INT TERM
    [ -z "$stop" ] || { kill $!; wait; exit 1; }
    wait $!
    status=$?
    [ "$status" = 0 ] || ! grep -q ': nothing ran:' "$log" || return # an op that has no such dtype
    {
        flock 9
        echo "== $title"
        cat "$log"
        if [ "$status" != 0 ] && grep -q 'Device not supported' "$log"; then
            echo "-- skipped: compute-sanitizer does not support this device or its virtual machine"
            touch "$log.skipped"
        elif [ "$status" = 0 ]; then
            echo "-- ok, $((SECONDS - start)) s"
            touch "$log.passed"
        else
            echo "-- FAILED with exit $status: $*"
            touch "$log.failed"
        fi
    } 9>"$logs/lock"
}

run() { # TITLE COMMAND...
    while [ "$running" -ge "$most" ]; do
        wait -n
        running=$((running - 1))
    done
    started=$((started + 1)) running=$((running + 1))
    CUDA_VISIBLE_DEVICES=${gpus[$((started % ${#gpus[@]}))]} one "$@" &
}

count() { find "$logs" -name "*.log.$1" | wc -l; }

# The shards of a program: --op and --dtype of all cases that it lists.
shards() { # PROGRAM [--small]
    "$@" --list | awk '{ print "--op " $1 " --dtype " $2 }' | sort -u
}

# The longest first: the model, then the sanitizers, then the shards.
for program in ${MODEL_TESTS:-}; do
    run "$(basename "$program") on the GPU" env STEPBENCH_TEST_DEVICE=cuda "$program"
done
for tool in racecheck memcheck; do
    for program; do
        name=$(basename "$program")
        if [ -z "$sanitizer" ]; then
            echo "== $name --small under $tool"
            echo "-- skipped: compute-sanitizer is neither on PATH nor in $CUDA_HOME"
            touch "$logs/$name.$tool.log.skipped"
            continue
        fi
        shards "$program" --small >"$logs/shards"
        while read -r shard; do
            # shellcheck disable=SC2086 # flags and options are meant to be split
            run "$name --small $shard under $tool" "$sanitizer" --tool $tool --error-exitcode 9 ${SANITIZER_FLAGS:-} \
                "$program" --small $shard
        done <"$logs/shards"
    done
done
for program; do
    shards "$program" >"$logs/shards"
    while read -r shard; do
        # shellcheck disable=SC2086 # options are meant to be split
        run "$(basename "$program") $shard" "$program" $shard
    done <"$logs/shards"
done
wait
echo "$(count passed) passed, $(count failed) failed$([ "$(count skipped)" = 0 ] || echo ", $(count skipped) skipped")"
[ "$(count failed)" = 0 ] && [ "$(count passed)" -gt 0 ]
