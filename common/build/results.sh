#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: results.sh pack FOLDER       packs the CSV files, checks and report.md of results/<machine> as <machine>.tar.gz here
#        results.sh unpack FILE DIR   unpacks such a file, which may come from anybody, as DIR/<machine>
# Of a stranger's file only plain files of plain names come out, at most 64 MiB of them, and nothing that is there is
# replaced: what else is in it is named, and exit code 2. `make pack` checks before, `make unpack` after.
set -u
export LC_ALL=C
refuse() { echo "results.sh: $*" >&2; exit 2; }
plain='[A-Za-z0-9][A-Za-z0-9._-]*'
machine=$(basename "${2:?}" .tar.gz)
[[ $machine =~ ^$plain$ ]] || refuse "'$machine' is no name of a machine: letters, digits, '.', '_' and '-'"

case $1 in
    pack)
        cd "$(dirname "$2")" || exit 2
        find "$machine" -type f \( -name '*.csv' ! -name gemm_choices.csv -o -path '*/checks/*' -o -path "$machine/report.md" \) |
            sort | tar czf "$OLDPWD/$machine.tar.gz" --owner=0 --group=0 --numeric-owner --files-from - || exit 1
        echo "$machine.tar.gz"
        ;;
    unpack)
        file=$(realpath "$2") into=${3:?}
        [ ! -e "$into/$machine" ] || refuse "$into/$machine is there already; move it away first"
        work=$(mktemp -d) || exit 1
        trap 'rm -rf "$work"' EXIT
        timeout 60 tar tvzf "$file" --quoting-style=escape >"$work/list" 2>&1 ||
            refuse "$2 can't be read: $(tail -n 1 "$work/list")"
        # mode, owner, bytes, date, time, name: a link's name goes on with an arrow, a folder's ends with a slash
        awk -v machine="$machine" -v plain="$plain" '
            { name = $0; for (i = 0; i < 5; i++) sub(/^[^ ]+ +/, "", name)
              bytes += $3; path = "^" machine "/(" plain "/)?" plain "$" }
            !/^-/ || name !~ path { print "is no plain file of the folder " machine ": " name; exit }
            bytes > 67108864 { print "holds more than 64 MiB"; exit }' "$work/list" >"$work/why"
        [ ! -s "$work/why" ] || refuse "$2 $(head -n 1 "$work/why" | cut -c1-200)"
        [ -s "$work/list" ] || refuse "$2 is empty"
        mkdir "$work/out" && tar xzf "$file" -C "$work/out" --no-same-owner --no-same-permissions &&
            mkdir -p "$into" && cp -R "$work/out/$machine" "$into/" || exit 1
        echo "$into/$machine"
        ;;
    *) refuse "there are pack and unpack" ;;
esac
