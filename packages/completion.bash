# SPDX-License-Identifier: MIT
# Completion of the benches' options and of the words that they take, for bash, as each program lists them (--list-options):
#   source packages/completion.bash
declare -A _stepbench_lists

_stepbench() {
    local program=$1 word=$2 previous=$3 list before
    [ -n "${_stepbench_lists[$program]-}" ] || _stepbench_lists[$program]=$("$program" --list-options 2>/dev/null)
    list=${_stepbench_lists[$program]}
    if [ "${word:0:1}" = - ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(awk -F '\t' 'NR > 1 { print "--" $1 }' <<<"$list") --help --version" -- "$word")
        return
    fi
    # A list of words goes on behind its last comma.
    before=${word%"${word##*,}"}
    mapfile -t COMPREPLY < <(compgen -P "$before" -W "$(awk -F '\t' -v name="${previous#--}" \
        'NR > 1 && $1 == name { gsub(/\|/, " ", $6); print $6 }' <<<"$list")" -- "${word##*,}")
    [ ${#COMPREPLY[@]} -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- "$word")
}

complete -F _stepbench bench_accounting bench_allreduce bench_attention bench_checkpoint bench_cp bench_ddp_bucketed \
    bench_ddp_flat bench_ddp_naive bench_ddp_overlap bench_flash bench_fsdp bench_memory bench_mesh bench_mixed_precision \
    bench_pp bench_qualify bench_recompute bench_roofline bench_run bench_tp bench_transformer bench_zero1
