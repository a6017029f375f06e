# SPDX-License-Identifier: MIT
# Recorded steps of sharded training: a file for each strategy and way to gather.
# shellcheck shell=sh disable=SC2154
files='' labels='' sums='' count=0 rank=0 device=''
for name in zero2 fsdp fsdp-copy fsdp-own fsdp-keep hsdp; do
    file=$results/timeline/$name.csv
    [ -s "$file" ] || continue
    # the comment of its sums: "# rank 0 of LABEL: 12.345 ms; compute ..."
    about=$(sed -n "s/^# rank $rank of \(.*; idle [^ ]* ms\).*/\1/p" "$file" | head -n 1)
    [ -n "$about" ] || continue
    count=$((count + 1))
    cp "$file" "$work/sharded-$count" # a name without blanks, which separate gnuplot's lists
    files="$files $work/sharded-$count"
    labels="$labels${labels:+, }$(quoted "${about%: *ms; compute *}")"
    short=$(printf '%s\n' "${about##*: }" |
        awk '{ printf "%.1f ms, exposed %.1f of %.1f", $1, $12, $7 }') # of "12.345 ms; compute 6.7 ms; ..."
    sums="$sums${sums:+, }$(quoted "$short")"
done
[ "$count" -gt 0 ] || exit 0
for key in cpu gpu_name; do
    of=$(values_of "$results/machine.csv" value "key=$key" 2>/dev/null) || of=
    [ -z "$of" ] || device=$of
done
# shellcheck disable=SC2034 # draw uses it
caption="$(basename "$results")${device:+, $device}, rank $rank"
draw fsdp_timeline "Recorded steps of sharded training" "files = $(quoted "$files")" "array labels[$count] = [$labels]" \
    "array sums[$count] = [$sums]" "rank = $rank"
