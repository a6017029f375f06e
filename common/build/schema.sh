#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: schema.sh FOLDER_OF_THE_BENCHES TABLES >schema.tsv
# Writes the columns that the report knows, a line each: table, file, column, kind (i, r, t), place (p: parameter) and default. Those of
# a bench come from its --list and --list-options, the others from the file TABLES (plots/report/tables.txt).
set -u
export LC_ALL=C

awk -v OFS='\t' '
    /^#/ || !NF { next }
    {
        bar = 0
        for (i = 3; i <= NF; i++) bar = $i == "|" ? i : bar
        for (i = 3; i <= NF; i++) {
            if ($i == "|") continue
            n = split($i, part, ":")
            print $1, $2, part[1], (n > 1 ? part[2] : "t"), (i < bar ? "p" : "m"), ""
        }
    }' "$2"

for main in bench/bench_*.c; do
    name=$(basename "$main" .c)
    { "$1/$name" --list-options && echo == && "$1/$name" --list; } | awk -F '\t' -v OFS='\t' -v table="$name" '
        /^==/ { listed = 1; next }
        !listed { gsub(/-/, "_", $1); plain[$1] = $3; option[$1] = 1; next }
        /^columns:/ { columns = 1; next }
        /^of the run/ { run = 1; next }
        columns && NF {
            split($0, word, " ")
            kind = word[2] == "text" ? "t" : word[1] ~ /_bytes$/ ? "r" : word[2] == "int" || word[2] == "flag" ? "i" : word[2] == "real" || word[2] == "bytes" ? "r" : "t"
            if (word[1] == "run_id") done = 1
            own = after && !done
            if (own && !(word[1] in option)) measured = 1 # parameters stand before what is measured
            print table, table ".csv", word[1], kind, (run ? "f" : own && !measured ? "p" : own ? "m" : "h"), (own && !measured ? plain[word[1]] : "")
            if (word[1] == "reason") after = 1
        }' || exit
done
