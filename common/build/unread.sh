#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: unread.sh FOLDER_OF_THE_BENCHES
# Prints every measured column, and every line of machine.csv about a run, that no report, figure, script, document, reference or
# comparison names and that common/build/columns.txt has no user for; and every line of that file that no such column needs.
set -u
export LC_ALL=C

readers() {
    find plots/report plots/figures plots/shared plots/*.sh plots/*.c run_all.sh reference docs README.md CONTRIBUTING.md tests/peers \
        common/compare common/qualify -type f ! -name '*.svg' ! -name tables.txt ! -path '*/__pycache__/*' \
        -exec grep -ohE '[A-Za-z_0-9]+' {} +
    # A bench reads rows of other benches by name.
    find bench common/session common/rows -name '*.c' -exec grep -ohE 'csv_(real|is|cell|column)\([^"]*"[a-z_0-9]+"' {} + | sed 's/.*"\(.*\)"/\1/'
}

{
    readers | sort -u | sed 's/^/word\t/'
    sed -nE 's/^([^#[:space:]]+)[[:space:]]+[^[:space:]].*/kept\t\1/p' common/build/columns.txt
    bash common/build/schema.sh "$1" plots/report/tables.txt | awk -F '\t' '/^bench_/ && ($5 == "m" || $5 == "f") { print "column\t" $3 "\t" $1 }'
} | awk -F '\t' '
    function pattern(glob) { gsub(/\*/, ".*", glob); return "^" glob "$" }
    $1 == "word" { read[$2] = 1; next }
    $1 == "kept" { kept[++n] = $2; next }
    $2 in read { columns++; next }
    {
        columns++
        found = 0
        for (i = 1; i <= n; i++) if ($2 ~ pattern(kept[i])) { used[i] = 1; found = 1 }
        if (!found) print $3 ": nobody reads " $2
    }
    END {
        for (i = 1; i <= n; i++) if (!(i in used)) print "columns.txt: " kept[i] " is read, or is no column"
        if (columns < 100) print "unread.sh: only " columns + 0 " columns were found"
    }'
