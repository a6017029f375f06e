#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: launchers.sh FOLDER_OF_PROGRAMS
# Real launchers start bench_allreduce and bench_ddp_bucketed on CPU ranks: Open MPI, the environment of torchrun, Slurm with
# two nodes of its own on this host, and ranks by hand on two hosts that are network namespaces, over IPv4 and IPv6, with and
# without a secret. What is not installed, or not allowed, is skipped with a sentence. Ends with "N passed, N failed".
# Processes end by the numbers that this script has of them, never by name. `make test-launchers` runs it.
set -u
programs=$(cd "${1:?the folder of the programs}" && pwd) || exit 2
work=$(mktemp -d) passed=0 failed=0 daemons=() spaces=()
secret=0123456789abcdef0123456789abcdef
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT STEPBENCH_SECRET STEPBENCH_PORT

end() {
    local pid name
    for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null; done
    [ ${#daemons[@]} = 0 ] || sleep 1
    for pid in "${daemons[@]}"; do kill -9 "$pid" 2>/dev/null; done
    for name in "${spaces[@]}"; do ip netns del "$name" 2>/dev/null; done
    rm -rf "$work"
}
trap end EXIT
trap 'exit 130' INT TERM

skip() { echo "skipped: $*"; }
verdict() { # NAME WANTED_CODE CODE OUTPUT WORDS: they are in one line. Ranks that do not find each other print a row each
    if [ "$2" = "$3" ] && [ "$(grep -c -- "$5" "$4")" = 1 ]; then
        passed=$((passed + 1))
        echo "passed: $1"
    else
        failed=$((failed + 1))
        echo "FAILED: $1: exit code $3, not $2, or not one \"$5\" in:"
        sed 's/^/    /' "$4" | tail -n 15
    fi
}

reduce=("$programs/bench_allreduce" --device cpu --csv - --variant all-reduce --bytes 64K --iters 3 --warmup 1)
step=("$programs/bench_ddp_bucketed" --device cpu --csv - --size tiny --precision fp32 --bucket-mb 1 --iters 3 --warmup 1)
# Both print a row with the status ok, which rank 0 has after it compared the results of all ranks.
both() { # NAME RANKS LAUNCHER...
    local name=$1 ranks=$2
    shift 2
    timeout 100 "$@" "${reduce[@]}" --ranks "$ranks" >"$work/out" 2>&1
    verdict "$name: bench_allreduce on $ranks ranks" 0 $? "$work/out" ',ok,'
    timeout 100 "$@" "${step[@]}" --ranks "$ranks" >"$work/out" 2>&1
    verdict "$name: bench_ddp_bucketed on $ranks ranks" 0 $? "$work/out" ',ok,'
}

# ---- Open MPI ----
if command -v mpirun >/dev/null && mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
    both 'Open MPI' 2 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -np 2
else
    skip 'Open MPI is not installed (openmpi-bin)'
fi

# ---- the environment of torchrun, one process each ----
cat >"$work/torchrun" <<'END'
#!/bin/bash
# A process per rank with the variables that torchrun --no-python sets; the largest exit code.
for rank in 0 1; do
    env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 GROUP_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29513 \
        TORCHELASTIC_RUN_ID=none "$@" &
    pids[rank]=$!
done
code=0
for pid in "${pids[@]}"; do
    wait "$pid" || code=$?
done
exit $code
END
chmod +x "$work/torchrun"
both 'torchrun' 2 "$work/torchrun"

# ---- the pods of an indexed Job of Kubernetes, without their network ----
pods() { # PROGRAM [OPTION]...
    local index code=0 pids=()
    for index in 0 1; do
        env NODES=2 GPUS=1 JOB_COMPLETION_INDEX=$index MASTER_ADDR=127.0.0.1 bash packages/pod_ranks.sh "$@" &
        pids+=($!)
    done
    for index in 0 1; do wait "${pids[index]}" || code=$?; done
    return $code
}
pods "${reduce[@]}" >"$work/out" 2>&1
verdict 'packages/pod_ranks.sh: bench_allreduce in two pods' 0 $? "$work/out" ',ok,'

# ---- Slurm: a controller and two nodes of one host, with munge and settings of their own ----
slurm() {
    local dir=$work/slurm node pid
    mkdir -p "$dir/state" "$dir/n1" "$dir/n2" && chmod 711 "$work" && chmod 755 "$dir"
    head -c 1024 /dev/urandom >"$dir/munge.key" && chmod 600 "$dir/munge.key"
    munged --force --foreground --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munge.pid" \
        --log-file="$dir/munge.log" --seed-file="$dir/munge.seed" >"$dir/munge.out" 2>&1 &
    daemons+=($!)
    cat >"$dir/slurm.conf" <<END
ClusterName=stepbench
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmdSpoolDir=$dir/%n
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName=n1 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=16821 CPUs=2 State=UNKNOWN
NodeName=n2 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=16822 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE MaxTime=5 State=UP
END
    export SLURM_CONF=$dir/slurm.conf
    slurmctld -D >"$dir/slurmctld.out" 2>&1 &
    daemons+=($!)
    for node in n1 n2; do
        slurmd -D -N $node >"$dir/slurmd-$node.out" 2>&1 &
        daemons+=($!)
    done
    for _ in {1..40}; do
        [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && return
        sleep 0.5
    done
    tail -n 5 "$dir"/*.out "$dir"/*.log >"$work/out" 2>&1
    return 1
}
if ! command -v slurmctld >/dev/null || ! command -v slurmd >/dev/null || ! command -v munged >/dev/null; then
    skip 'Slurm is not installed (slurmctld slurmd slurm-client munge)'
elif [ "$(id -u)" != 0 ]; then
    skip 'Slurm: its daemons are started as root, which this user is not'
elif slurm; then
    both 'srun, one node' 2 srun -N 1 -n 2
    # Their names are Slurm's alone, so the address is given.
    both 'srun, two nodes' 2 env STEPBENCH_SECRET=$secret MASTER_ADDR=127.0.0.1 srun -N 2 -n 2
    # The job scripts of packages/, with CPUs in place of GPUs.
    batch() { # NAME WORDS SCRIPT [OPTION]...
        local name=$1 words=$2 script=packages/$3
        shift 3
        STEPBENCH=$programs MASTER_ADDR=127.0.0.1 timeout 100 sbatch --wait --quiet --time=2 --gpus-per-node=0 --ntasks-per-node=1 \
            --output="$work/job" "$script" "$@" >"$work/out" 2>&1
        local code=$?
        cat "$work/job" >>"$work/out" 2>/dev/null
        verdict "$name" 0 $code "$work/out" "$words"
    }
    batch 'sbatch packages/nodes.sbatch' ',ok,' nodes.sbatch bench_allreduce "${reduce[@]:1}"
    batch 'sbatch packages/qualify.sbatch' '^usage: bench_qualify' qualify.sbatch --help
else
    verdict 'Slurm: both nodes come up' 0 1 "$work/out" .
fi

# ---- two hosts, which are network namespaces with a cable between them ----
hosts() {
    local a=sbA$$ b=sbB$$
    ip netns add $a 2>"$work/out" || return 1
    spaces+=($a)
    ip netns add $b 2>"$work/out" || return 1
    spaces+=($b)
    ip link add cable netns $a type veth peer name cable netns $b 2>"$work/out" || return 1
    ip -n $a addr add 10.77.0.1/24 dev cable && ip -n $b addr add 10.77.0.2/24 dev cable &&
        ip -n $a addr add fd77::1/64 dev cable nodad && ip -n $b addr add fd77::2/64 dev cable nodad &&
        ip -n $a link set cable up && ip -n $b link set cable up && ip -n $a link set lo up && ip -n $b link set lo up
} 2>>"$work/out"
# Each namespace has a host name of its own, by which ranks tell hosts apart.
on_hosts() { # MASTER_ADDR SECRET_OF_0 SECRET_OF_1 PROGRAM...
    local address=$1 secrets=("$2" "$3") rank code=0 pids=()
    shift 3
    for rank in 0 1; do
        ip netns exec "${spaces[rank]}" unshare --uts bash -c 'hostname "$1" && shift && exec "$@"' - "host$rank" \
            env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR="$address" MASTER_PORT=29513 \
            ${secrets[rank]:+STEPBENCH_SECRET=${secrets[rank]}} timeout 60 "$@" >"$work/out$rank" 2>&1 &
        pids+=($!)
    done
    for rank in 0 1; do wait "${pids[rank]}" || code=$?; done
    cat "$work/out0" "$work/out1" >"$work/out"
    return $code
}
if ! command -v ip >/dev/null || ! hosts; then
    skip "two hosts: this user may make no network namespaces ($(head -n 1 "$work/out" 2>/dev/null))"
else
    for address in 10.77.0.1 fd77::1; do
        on_hosts $address $secret $secret "${reduce[@]}" --ranks 2
        verdict "two hosts at $address: bench_allreduce" 0 $? "$work/out" ',ok,'
        on_hosts $address $secret $secret "${step[@]}" --ranks 2
        verdict "two hosts at $address: bench_ddp_bucketed" 0 $? "$work/out" ',ok,'
    done
    on_hosts 10.77.0.1 '' '' "${reduce[@]}" --ranks 2
    verdict 'two hosts without a secret are refused' 2 $? "$work/out" 'rank 0 of 2 .* takes a secret'
    on_hosts 10.77.0.1 $secret "${secret}x" "${reduce[@]}" --ranks 2 --timeout 5
    code=$?
    verdict 'a rank with another secret does not join' 0 $((code == 0)) "$work/out" 'STEPBENCH_SECRET is not that of rank 0'
fi

echo "$passed passed, $failed failed"
[ $failed = 0 ]
