#!/bin/sh
# SPDX-License-Identifier: MIT
# Draws every figure of a machine: plots/draw.sh RESULTS_DIR [OUT_DIR]. Reads RESULTS_DIR/*.csv, writes .svg to
# OUT_DIR, by default plots/<name of RESULTS_DIR>/, and removes there what has no rows any more. Each built bench names its
# figures (--list-runs); figures/<name>.gp draws one, from the rows that figures/<name>.sql names (docs/report.md) or the
# recordings that figures/<name>.sh reads. From the environment: BENCHES, the folder of the benches, by default the
# project's root; REPORT, the report program, by default build/report.
set -eu
export LC_ALL=C # awk and sort may want commas in numbers elsewhere.
unset CDPATH # With it set, cd prints a line, or goes elsewhere.
plots=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ] || [ $# -gt 2 ] || [ ! -d "$1" ]; then
    [ $# -ne 1 ] && [ $# -ne 2 ] || echo "plots/draw.sh: $1 is not a folder" >&2
    echo "usage: plots/draw.sh RESULTS_DIR [OUT_DIR], such as plots/draw.sh results/h200-x1" >&2
    exit 2
fi
results=$(cd "$1" && pwd)
out=${2:-$plots/$(basename "$results")}
report=${REPORT:-$plots/../build/report}
benches=${BENCHES:-$plots/..}
if ! command -v gnuplot >/dev/null 2>&1; then
    echo "plots/draw.sh: gnuplot is missing, so no figures were drawn; on Debian or Ubuntu: apt-get install gnuplot-nox"
    exit 0
fi
if [ ! -x "$report" ]; then
    echo "plots/draw.sh: $report is missing; build it with make" >&2
    exit 1
fi
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tab=$(printf '\t')
: >"$work/drawn"

# ---- which figures: those of all benches, in the benches' order, each once ----

for bench in "$benches"/bench_*; do
    if [ ! -f "$bench" ] || [ ! -x "$bench" ]; then continue; fi
    "$bench" --list-runs >"$work/facts" || {
        echo "plots/draw.sh: $bench --list-runs failed" >&2
        exit 1
    }
    order=$(sed -n "s/^order$tab//p" "$work/facts")
    sed -n "s/^figure$tab/$order /p" "$work/facts" >>"$work/named"
done
if [ ! -s "$work/named" ]; then
    echo "plots/draw.sh: no bench in $benches names a figure; build the benches with make" >&2
    exit 1
fi
names=$(sort -s -n "$work/named" | awk '!seen[$2]++ { print $2 }')

# ---- draw ----

# A text as a gnuplot string. In single quotes only a quote, a line's end and a backslash before it mean anything.
quoted() { printf "'%s'" "$(printf %s "$1" | tr '\000-\037\177' '[_*]' | sed "s/'/''/g")"; }

# asked QUERY: the rows that it finds (report --sql), without their header
asked() { "$report" --sql "$results" "$1" | tail -n +2 | tr -d '"'; }

# draw FIGURE NAME: figures/FIGURE.gp with the variables in $work/NAME.gp, as $out/NAME.svg. It runs in $work, so that names
# of files there have no blanks. Values come from files that others send: they reach gnuplot in quotes, never as code.
draw() {
    figure=$1 name=$2
    {
        echo "folder = $(quoted "$plots"); data = $(quoted "$name.csv"); output = 'figure'"
        cat "$work/$name.gp"
    } >"$work/variables.gp"
    code=0
    (cd "$work" && gnuplot variables.gp "$plots/figures/$figure.gp") >"$work/log" 2>&1 || code=$?
    if [ $code = 3 ]; then # the figure finds that it has nothing to show
        rm -f "$work/figure"
    elif [ $code = 0 ] && [ -s "$work/figure" ]; then
        awk '/^[ \t]*$/ { next } # without blank lines and empty groups
            held { empty = /^<\/g>$/; if (!empty) print held; held = ""; if (empty) next }
            /^<g fill="none"/ { held = $0; next }
            { print }' "$work/figure" >"$out/$name.svg"
        echo "$name" >>"$work/drawn"
    else
        echo "plots/draw.sh: $name could not be drawn:" >&2
        sed 's/^/    /' "$work/log" >&2
        : >"$work/failed"
    fi
}

# Rows come from figures/<figure>.sql, by the report program; recordings from files, by figures/<figure>.sh.
for figure in $names; do
    if [ ! -f "$plots/figures/$figure.gp" ]; then
        echo "plots/draw.sh: there is no $plots/figures/$figure.gp" >&2
        : >"$work/failed"
    fi
done
# shellcheck disable=SC2086 # names are words
"$report" --figures "$results" "$work" $names >"$work/figures" || : >"$work/failed"
for figure in $names; do
    [ -f "$plots/figures/$figure.sh" ] || continue
    (
        set -e
        # shellcheck source=/dev/null
        . "$plots/figures/$figure.sh"
    ) || : >"$work/failed"
done
while read -r figure name; do draw "$figure" "$name"; done <"$work/figures"

# A figure whose rows are gone would show another campaign's.
if [ ! -e "$work/failed" ]; then
    for path in "$out"/*.svg; do
        name=$(basename "$path" .svg)
        if grep -qxF "$name" "$work/drawn"; then continue; fi
        for figure in $names; do
            case $name in "$figure" | "$figure"_*) rm -f "$path" ;; esac
        done
    done
fi

echo "$(($(wc -l <"$work/drawn"))) figures in $out"
[ ! -e "$work/failed" ]
