#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: results.sh pack FOLDER       packs the CSV files, checks and report.md of results/<machine> as <machine>.tar.gz here
#        results.sh unpack FILE DIR   unpacks such a file, which may come from anybody, as DIR/<machine>
# Of a stranger's file only what pack packs comes out, at most 64 MiB of it, and nothing that is there is replaced: what
# else is in it is named, and exit code 2. `make pack` checks before, `make unpack` after.
set -u
export LC_ALL=C
refuse() { echo "results.sh: $*" >&2; exit 2; }
plain='[A-Za-z0-9][A-Za-z0-9._-]*'
[ -n "${2:-}" ] || refuse "which? make pack RESULTS=results/<machine>, make unpack FILE=<machine>.tar.gz"
machine=$(basename "$2" .tar.gz)
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
        (ulimit -f 16384; timeout 60 tar tvzf "$file" --numeric-owner --quoting-style=escape) >"$work/list" 2>"$work/why" || {
            why=$(grep -m 1 . "$work/why" | cut -c1-200)
            refuse "$2 can't be read: ${why:-its list of files has no end}"
        }
        # mode, owner, bytes, date, time, name: a link's name goes on with an arrow, a folder's ends with a slash. A file
        # takes a block of 4 KiB, too.
        awk -v machine="$machine" -v plain="$plain" '
            { name = $0; for (i = 0; i < 5; i++) sub(/^[^ ]+ +/, "", name)
              folder = name; sub(/\/.*/, "", folder)
              renamed = folder != machine && folder ~ "^" plain "$" ? "; if it was renamed, call it " folder ".tar.gz again" : ""
              bytes += $3 + 4096; path = "^" machine "/(" plain "/)?" plain "$" }
            !/^-/ || name !~ path {
                print "is no plain file of the folder " machine ": " name renamed; exit }
            name !~ /\.csv$|\/checks\/|^[^\/]*\/report\.md$/ || name ~ /\/gemm_choices\.csv$/ {
                print "is nothing that make pack packs: " name; exit }
            bytes > 67108864 { print "holds more than 64 MiB"; exit }' "$work/list" >"$work/why"
        [ ! -s "$work/why" ] || refuse "$2 $(head -n 1 "$work/why" | cut -c1-200)"
        [ -s "$work/list" ] || refuse "$2 is empty"
        mkdir "$work/out" && tar xzf "$file" -C "$work/out" --no-same-owner --no-same-permissions &&
            mkdir -p "$into" && cp -R "$work/out/$machine" "$into/" || exit 1
        echo "$into/$machine"
        ;;
    *) refuse "there are pack and unpack" ;;
esac
