#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: pod_ranks.sh BENCH [OPTION]...
# The ranks of one pod of an indexed Job, GPUS of them in each of NODES pods; pod JOB_COMPLETION_INDEX has those from
# JOB_COMPLETION_INDEX * GPUS on. MASTER_ADDR is the name of pod 0. Exit code: the largest of a rank.
set -u
bench=${1:?which bench?}
shift
world=$((NODES * GPUS)) code=0 pids=()
# The name of another pod is known some seconds after that has started.
for _ in {1..120}; do
    getent hosts "$MASTER_ADDR" >/dev/null && break
    sleep 1
done
for ((local = 0; local < GPUS; local++)); do
    RANK=$((JOB_COMPLETION_INDEX * GPUS + local)) WORLD_SIZE=$world LOCAL_RANK=$local LOCAL_WORLD_SIZE=$GPUS \
        "$bench" --ranks $world "$@" &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid"
    status=$?
    [ $status -le $code ] || code=$status
done
exit $code
