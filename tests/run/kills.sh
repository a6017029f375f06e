#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: kills.sh [PROGRAM]    five training runs on two GPUs, side by side, each killed with SIGKILL four times and compared
#                              with the run that nobody killed: every checkpoint, loss and record of the log. PROGRAM is
#                              build/tests/run/test_resume; STEPBENCH_DEVICE=cpu needs no GPU. Some MB of files go to TMPDIR,
#                              else /dev/shm. Exit code 1: something is lost, or fewer than 15 of 20 have hit
set -u
export TMPDIR=${TMPDIR:-/dev/shm}
program=${1:-build/tests/run/test_resume}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
for way in 0 1 2 3 4; do
    STEPBENCH_DEVICE=${STEPBENCH_DEVICE:-cuda} STEPBENCH_RESUMES=1 STEPBENCH_RESUME_FROM=$way "$program" >"$work/$way" 2>&1 &
    pids[way]=$!
done
lost=0
for way in 0 1 2 3 4; do
    wait "${pids[way]}" || { lost=$((lost + 1)) && cat "$work/$way"; }
done
grep -h ' kills, ' "$work"/*
kills=$(grep -h ' kills, ' "$work"/* | awk '{ n += $2 } END { print n + 0 }')
echo "$kills kills, $lost runs lost something"
[ "$lost" = 0 ] && [ "$kills" -ge 15 ] # a run may end before the last one
