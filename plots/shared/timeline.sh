# SPDX-License-Identifier: MIT
# What the figures of recorded steps share.
# shellcheck shell=sh disable=SC2154

# draw_timeline NAME TITLE SUMS FILE ...: a panel for each recording that says its sums, under its label and what the awk
# expression SUMS makes of them: "12.345 ms; compute 6.7 ms; ...".
draw_timeline() {
    figure_name=$1 figure_title=$2 shown=$3
    shift 3
    files='' count=0 rank=0 given=$#
    for file; do # the comment of its sums: "# rank 0 of LABEL: 12.345 ms; compute ..."
        about=$(sed -n "s/^# rank $rank of \(.*; idle [^ ]* ms\).*/\1/p" "$file" | head -n 1)
        [ -n "$about" ] || continue
        count=$((count + 1))
        cp "$file" "$work/$figure_name-$count"
        files="$files $figure_name-$count"
        set -- "$@" "label_$count=${about%: *ms; compute *}" \
            "sum_$count=$(printf '%s\n' "${about##*: }" | awk "{ printf $shown }")"
    done
    shift "$given"
    [ "$count" -gt 0 ] || return 0
    device=$(asked "SELECT ', ' || value FROM machine WHERE key IN ('cpu', 'gpu_name') ORDER BY key = 'gpu_name' DESC, id DESC LIMIT 1")
    {
        echo "title = $(quoted "$figure_title"); caption = $(quoted "$(basename "$results")$device, rank $rank")"
        echo "files = $(quoted "$files"); rank = $rank"
        for each; do echo "${each%%=*} = $(quoted "${each#*=}")"; done
    } >"$work/$figure_name.gp"
    echo "$figure $figure_name" >>"$work/figures"
}
