# SPDX-License-Identifier: MIT
# What the figures of recorded steps share.
# shellcheck shell=sh disable=SC2154

# timeline_spans FILE: of $rank's spans the kind (products, attention, optimizer, other compute, gathers, other communication, exposed),
# start and end in ms. Spans of one kind less than half a pixel apart are one.
timeline_spans() {
    awk -F, -v rank="$rank" '
        function kind(lane, name) {
            return lane == "exposed" ? 7 : lane == "communication" ? (name ~ /gather|copy/ ? 5 : 6) : lane != "compute" ? 0 : \
                name ~ /gemm|matmul/ ? 1 : name ~ /flash|attention|softmax/ ? 2 : name ~ /^adamw$|^AdamW$|optimizer/ ? 3 : 4
        }
        NF > 6 && $(NF - 5) == rank && (k = kind($(NF - 4), $(NF - 2))) { print k, $(NF - 1) / 1e3, $NF / 1e3 }' "$1" | sort -k 2,2n | awk '
        { kind[NR] = $1; from[NR] = $2; to[NR] = $3; if ($3 > last) last = $3 }
        function spell(k) { printf "%d,%.6g,%.6g\n", k, start[k], end[k] }
        END {
            print "kind,start,end"
            for (i = 1; i <= NR; i++) {
                k = kind[i]
                if (k in end && from[i] - end[k] < last / 1560) {
                    if (to[i] > end[k]) end[k] = to[i]
                    continue
                }
                if (k in end) spell(k)
                start[k] = from[i]; end[k] = to[i]
            }
            for (k in end) spell(k)
        }'
}

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
        timeline_spans "$file" >"$work/$figure_name-$count"
        files="$files $figure_name-$count"
        set -- "$@" "label_$count=${about%: *ms; compute *}" \
            "sum_$count=$(printf '%s\n' "${about##*: }" | awk "{ printf $shown }")"
    done
    shift "$given"
    [ "$count" -gt 0 ] || return 0
    device=$(asked "SELECT ', ' || value FROM machine WHERE key IN ('cpu', 'gpu_name') ORDER BY key = 'gpu_name' DESC, id DESC LIMIT 1")
    {
        echo "title = $(quoted "$figure_title"); caption = $(quoted "$(basename "$results")$device, rank $rank")"
        echo "files = $(quoted "$files")"
        for each; do echo "${each%%=*} = $(quoted "${each#*=}")"; done
    } >"$work/$figure_name.gp"
    echo "$figure $figure_name" >>"$work/figures"
}
