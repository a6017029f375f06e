# SPDX-License-Identifier: MIT
# For each dtype: all-reduce by number of ranks, the collectives on the most ranks, and our own all-reduces beside the
# library's.
# shellcheck shell=sh disable=SC2154
allreduce=$results/bench_allreduce.csv
[ -s "$allreduce" ] || exit 0

# The sizes without those that another one exceeds by a few percent: 1 MB beside 1 MiB would be one point twice.
apart() {
    echo "$1" | tr ' ' '\n' | sort -n | awk 'NR > 1 && $1 > 1.08 * last { print last } { last = $1 } END { print last }' | tr '\n' ' '
}

# collective NAME TITLE BY SUFFIX ONLY [COLUMN=VALUE ...]: a colour for each value of BY, of those in ONLY unless empty
collective() {
    kind=$1 of=$2 by=$3 suffix=$4 only=$5
    shift 5
    pick "$allreduce" "bytes,mode,dtype,$by" "$@" && several "$(values bytes)" || return 0
    draw "allreduce_$kind" "$of ($shape)" "by=$by" "suffix=$suffix" \
        "series=$(ordered "${only:-$(values "$by")}" "$(values "$by")")" "sizes=$(apart "$(values bytes)")" \
        "modes=$(ordered 'eager graph' "$(values mode)")"
}

# Of Gloo beside NCCL: figures of its own. A device and a dtype: all their figures.
devices=$(values_of "$allreduce" device status=ok)
figures_of() {
    device=$1 dtype=$2 on='' between=''
    case "$devices" in *cuda*) [ "$device" = cuda ] || on=_cpu between=', between CPUs' ;; esac
    set -- "device=$device" "dtype=$dtype"
    place=0
    if has 1 "$(values_of "$allreduce" in_place status=ok "$@")"; then place=1; fi
    most=$(values_of "$allreduce" ranks status=ok "$@")
    most=${most##* }
    collective "ranks_$dtype$on" "All-reduce, $dtype$between" ranks ' ranks' '' "$@" "in_place=$place" variant=all-reduce
    collective "ops_$dtype$on" "Collectives, $dtype$between" variant '' \
        'all-reduce all-gather reduce-scatter broadcast reduce' "$@" "in_place=$place" "ranks=$most"
    case " $(values_of "$allreduce" variant status=ok "$@" "ranks=$most") " in *-shot*)
        collective "own_$dtype$on" "All-reduce of the library and ours, $dtype" variant '' 'all-reduce one-shot two-shot' \
            "$@" "in_place=$place" "ranks=$most"
        ;;
    esac
}
for device in $devices; do
    for dtype in $(values_of "$allreduce" dtype status=ok "device=$device"); do figures_of "$device" "$dtype"; done
done
