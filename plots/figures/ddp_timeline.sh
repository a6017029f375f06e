# SPDX-License-Identifier: MIT
# Recorded steps of data parallelism: a file for each recording, from the simplest strategy to the best, then any others.
# shellcheck shell=sh disable=SC2154
set --
for strategy in naive flat overlap bucketed zero1; do
    [ ! -s "$results/timeline/$strategy.csv" ] || set -- "$@" "$results/timeline/$strategy.csv"
done
for file in "$results"/timeline/*.csv; do
    case ${file##*/} in
        naive.csv | flat.csv | overlap.csv | bucketed.csv | zero1.csv) continue ;;
        zero2.csv | fsdp*.csv | hsdp.csv) continue ;; # fsdp_timeline has them
    esac
    [ ! -s "$file" ] || set -- "$@" "$file"
done
files='' labels='' sums='' count=0 rank=0 device=''
for file; do # the comment of its sums: "# rank 0 of LABEL: 12.345 ms; compute ..."
    about=$(sed -n "s/^# rank $rank of \(.*; idle [^ ]* ms\).*/\1/p" "$file" | head -n 1)
    [ -n "$about" ] || continue
    count=$((count + 1))
    cp "$file" "$work/recording-$count" # a name without blanks, which separate gnuplot's lists
    files="$files $work/recording-$count"
    labels="$labels${labels:+, }$(quoted "${about%: *ms; compute *}")"
    short=$(printf '%s\n' "${about##*: }" |
        awk '{ printf "%.1f ms, communication %.1f, exposed %.1f", $1, $7, $12 }') # of "12.345 ms; compute 6.7 ms; ..."
    sums="$sums${sums:+, }$(quoted "$short")"
done
[ "$count" -gt 0 ] || exit 0
for key in cpu gpu_name; do
    of=$(values_of "$results/machine.csv" value "key=$key" 2>/dev/null) || of=
    [ -z "$of" ] || device=$of
done
# shellcheck disable=SC2034 # draw uses it
caption="$(basename "$results")${device:+, $device}, rank $rank"
draw ddp_timeline "Recorded training steps" "files = $(quoted "$files")" "array labels[$count] = [$labels]" \
    "array sums[$count] = [$sums]" "rank = $rank"
