#!/bin/sh
# SPDX-License-Identifier: MIT
# Draws every figure of a machine: plots/draw.sh RESULTS_DIR [OUT_DIR]. Reads RESULTS_DIR/*.csv, writes .svg to
# OUT_DIR, by default plots/<name of RESULTS_DIR>/, and removes there what has no rows any more. Each built bench names its
# figures (--list-runs); figures/<name>.gp draws one, and figures/<name>.sh or comments `#: ` at the top of the .gp say from
# which rows. From the environment: BENCHES, the folder of the benches, by default the project's root; REPORT, the report
# program, by default build/report.
set -eu
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
data=$work/data.csv
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

# ---- what a figure's .sh works with ----

# pick FILE AXES [COLUMN=VALUE ...]: rows for a figure into $data; sets caption and shape; false when there are none.
pick() {
    file=$1 axes=$2
    shift 2
    "$report" --tidy "$file" "$data" --axes "$axes" status=ok "$@" >"$work/caption"
    caption=$(sed -n 1p "$work/caption")
    shape=$(sed -n 2p "$work/caption")
    [ -n "$caption" ]
}

# values COLUMN [COLUMN=VALUE ...]: the distinct ones in $data, of the rows that have the values.
values() { "$report" --values "$data" "$@"; }
values_of() { "$report" --values "$@"; }                         # FILE COLUMN [COLUMN=VALUE ...]: in a file
has() { case " $2 " in *" $1 "*) ;; *) return 1 ;; esac }        # VALUE LIST
several() { case $1 in *" "*) ;; *) return 1 ;; esac }           # LIST; one length makes no curve
# A text as a gnuplot string. In single quotes only a quote, a line's end and a backslash before it mean anything.
quoted() { printf "'%s'" "$(printf %s "$1" | tr '\000-\037\177' '[_*]' | sed "s/'/''/g")"; }

# ordered NAMES LIST: those of the names that are in the list.
ordered() {
    for each in $1; do
        if has "$each" "$2"; then printf '%s ' "$each"; fi
    done
}
models='tiny small medium large xl 2.7b xl-2026 10b 8b'

# draw NAME TITLE [VARIABLE=TEXT | VARIABLE:=NUMBER ...]: $figure.gp with $data, as $out/NAME.svg. It runs in $work, so that
# names of files there have no blanks. Values come from files that others send: they reach gnuplot in quotes, never as code.
draw() {
    name=$1 title=$2
    shift 2
    case $name in
        *[!A-Za-z0-9_.+-]*)
            echo "plots/draw.sh: no figure is named '$name'; letters, digits and _ . + - make a name" >&2
            : >"$work/failed"
            return
            ;;
    esac
    for assignment in "folder=$plots" output=figure "data=$data" "title=$title" "caption=$caption" "$@"; do
        variable=${assignment%%=*} value=$(quoted "${assignment#*=}")
        case $variable in
            *:) printf '%s = %s + 0\n' "${variable%:}" "$value" ;; # no number, no figure
            *) printf '%s = %s\n' "$variable" "$value" ;;
        esac
    done >"$work/variables.gp"
    code=0
    (cd "$work" && gnuplot variables.gp "$plots/figures/$figure.gp") >"$work/log" 2>&1 || code=$?
    if [ $code = 3 ]; then # the figure finds that it has nothing to show
        rm -f "$work/figure"
    elif [ $code = 0 ] && [ -s "$work/figure" ]; then
        mv "$work/figure" "$out/$name.svg"
        echo "$name" >>"$work/drawn"
    else
        echo "plots/draw.sh: $name could not be drawn:" >&2
        sed 's/^/    /' "$work/log" >&2
        : >"$work/failed"
    fi
}

# ---- figures whose .gp says what they need, in lines `#: WORD ...` ----
# data FILE                   below RESULTS_DIR; no figure without it
# each COLUMN [C=V ...]       a figure for each value; {COLUMN} in the other lines is the value
# axes A,B [C=V ...]          rows that differ in nothing else, and have the values
# prefer COLUMN V ...         of rows with the first of these values that there is
# several COLUMN [C=V ...]    no figure unless there are several values
# needs COLUMN V ...          no figure unless all of these values are there
# measured NAME COLUMN ...    NAME is the first column that has numbers; no figure without one
# most NAME COLUMN            NAME is the largest number of a column, 0 where there is none
# list NAME COLUMN [C=V ...] [in V ... | in models] [with COLUMN2]
#                             NAME is the list of values, in this order; `with`: those that have several values of COLUMN2
# title TEXT                  {shape} is what all rows share, {COLUMN} the values of a column

# Of what follows `list NAME`: prints the list.
list_of() {
    column=$1 conditions='' order='' with=''
    shift
    while [ $# -gt 0 ]; do
        case $1 in
            in)
                shift
                while [ $# -gt 0 ] && [ "$1" != with ]; do order="$order $1" && shift; done
                ;;
            with) with=$2 && shift 2 ;;
            *) conditions="$conditions $1" && shift ;;
        esac
    done
    # shellcheck disable=SC2086 # conditions are words
    list=$(values "$column" $conditions)
    [ "$order" != ' models' ] || order=$models
    [ -z "$order" ] || list=$(ordered "$order" "$list")
    if [ -z "$with" ]; then
        echo "$list"
    else
        for value in $list; do
            if several "$(values "$with" "$column=$value")"; then printf '%s ' "$value"; fi
        done
    fi
}

first_measured() { # COLUMN ...
    for column; do
        if [ "$(values "$column")" != nan ] && [ -n "$(values "$column")" ]; then
            echo "$column"
            return
        fi
    done
    return 1
}

# {COLUMN} of a line by what it stands for.
filled() {
    text=$1
    while :; do
        case $text in *\{*\}*) ;; *) break ;; esac
        rest=${text#*\{}
        key=${rest%%\}*}
        case $key in shape) value=$shape ;; "$by") value=$one ;; *) value=$(values "$key") ;; esac
        text=${text%%\{*}$value${rest#*\}}
    done
    printf '%s\n' "$text"
}

# draw_one NAME: by the lines in $work/needs, of which {$by} stands for $one.
# shellcheck disable=SC2086,SC2046 # words of a line are meant to be split
draw_one() {
    name=$1 file='' axes='' conditions='' title=''
    while read -r word rest; do
        [ "$word" = title ] || rest=$(filled "$rest")
        case $word in
            data) file=$results/$rest ;;
            prefer)
                column=${rest%% *}
                here=$(ordered "${rest#* }" "$(values_of "$file" "$column" status=ok)")
                [ -z "$here" ] || conditions="$conditions $column=${here%% *}"
                ;;
            axes)
                axes=${rest%% *}
                [ "$axes" = "$rest" ] || conditions="$conditions ${rest#* }"
                ;;
            title) title=$rest ;;
        esac
    done <"$work/needs"
    pick "$file" "$axes" $conditions || return 0
    set -- "$name" "$(filled "$title")"
    while read -r word rest; do
        [ "$word" = title ] || rest=$(filled "$rest")
        case $word in
            several) several "$(values $rest)" || return 0 ;;
            needs)
                here=$(values "${rest%% *}")
                for value in ${rest#* }; do has "$value" "$here" || return 0; done
                ;;
            measured)
                column=$(first_measured ${rest#* }) || return 0
                set -- "$@" "${rest%% *}=$column"
                ;;
            most)
                most=$(values "${rest#* }" | tr ' ' '\n' | grep -v nan | sort -g | tail -n 1)
                set -- "$@" "${rest%% *}:=${most:-0}"
                ;;
            list)
                list=$(list_of ${rest#* })
                case $rest in *' with '*) [ -n "$list" ] || return 0 ;; esac
                set -- "$@" "${rest%% *}=$list"
                ;;
        esac
    done <"$work/needs"
    draw "$@"
}

by_comments() {
    sed -n 's/^#: //p' "$plots/figures/$figure.gp" >"$work/needs"
    from=$results/$(sed -n 's/^data //p' "$work/needs")
    [ -s "$from" ] || return 0
    each=$(sed -n 's/^each //p' "$work/needs")
    by=${each%% *} one=''
    if [ -z "$each" ]; then
        draw_one "$figure"
        return
    fi
    # shellcheck disable=SC2086 # conditions are words
    for one in $(values_of "$from" $each); do draw_one "${figure}_$one"; done
}

draw_figure() {
    if [ -f "$plots/figures/$figure.sh" ]; then
        # shellcheck source=/dev/null
        . "$plots/figures/$figure.sh"
    elif [ -f "$plots/figures/$figure.gp" ]; then
        by_comments
    else
        echo "plots/draw.sh: there is no $plots/figures/$figure.gp" >&2
        exit 1
    fi
}

for figure in $names; do
    set +e # a figure that fails does not stop the others
    (
        set -e
        draw_figure
    )
    status=$?
    set -e
    [ $status = 0 ] || : >"$work/failed"
done

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
