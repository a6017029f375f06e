#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: run_gpu_tests.sh --gpu-present    exits 77 with one sentence when there is no GPU
#        run_gpu_tests.sh program...      runs each GPU test program, then its --small form under compute-sanitizer's
#                                         memcheck and racecheck; ends with the plain line "N passed, N failed"
# From the environment: HAVE_CUDA CUDA_HOME SANITIZER_FLAGS, MODEL_TESTS (programs of make test that run on a GPU, too)
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
passed=0 failed=0 skipped=0

run() { # TITLE COMMAND...
    local title=$1 status start=$SECONDS
    shift
    echo "== $title"
    "$@" </dev/null 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    if [ "$status" != 0 ] && grep -q 'Device not supported' "$log"; then
        echo "-- skipped: compute-sanitizer does not support this device or its virtual machine"
        skipped=$((skipped + 1))
    elif [ "$status" = 0 ]; then
        echo "-- ok, $((SECONDS - start)) s"
        passed=$((passed + 1))
    else
        echo "-- FAILED with exit $status"
        failed=$((failed + 1))
    fi
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for program; do
    name=$(basename "$program")
    run "$name" "$program"
    for tool in memcheck racecheck; do
        if [ -n "$sanitizer" ]; then
            # shellcheck disable=SC2086 # flags are meant to be split
            run "$name --small under $tool" "$sanitizer" --tool $tool --error-exitcode 9 ${SANITIZER_FLAGS:-} \
                "$program" --small
        else
            echo "== $name --small under $tool"
            echo "-- skipped: compute-sanitizer is neither on PATH nor in $CUDA_HOME"
            skipped=$((skipped + 1))
        fi
    done
done
for program in ${MODEL_TESTS:-}; do
    run "$(basename "$program") on the GPU" env STEPBENCH_TEST_DEVICE=cuda "$program"
done
echo "$passed passed, $failed failed$([ "$skipped" = 0 ] || echo ", $skipped skipped")"
[ "$failed" = 0 ]
