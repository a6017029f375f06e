#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: columns.sh FOLDER_OF_THE_BENCHES >docs/columns.md
# Writes the page that lists every bench's variants and columns, from what the benches say of themselves (--list).
set -u
export LC_ALL=C

cat <<'END'
# Columns

Every column of every bench, written by `make columns` from `./bench_<name> --list`.

A CSV row has the columns of all benches up to `reason`, then the parameters, then what was measured, then the columns of all
benches from `run_id` on; `bench_accounting` times nothing and has none of timing, clocks and power. What holds for a whole
run is in `machine.csv`. Missing numbers are `nan`, missing text is empty. [formulas.md](formulas.md) derives the rates.

END

benches=()
for bench in "$1"/bench_*; do
    name=$(basename "$bench")
    [ -x "$bench" ] && [ -f "bench/$name.c" ] && benches+=("$bench")
done
[ ${#benches[@]} -gt 0 ] || {
    echo "columns.sh: no benches in '$1'" >&2
    exit 1
}

# As TAB-separated lines: bench, "variant" or "column", name, kind (of a column), description.
for bench in "${benches[@]}"; do
    "$bench" --list | awk -v bench="$(basename "$bench")" -v OFS='\t' '
        /^variants:/ { what = "variant"; next }
        /^columns:/ { what = "column"; next }
        /^of the run/ { what = "run"; next }
        NF {
            name = kind = $1
            sub(/^ *[^ ]+ +/, "")
            kind = ""
            if (what != "variant") { kind = $1; sub(/^[^ ]+ +/, "") }
            print bench, what, name, kind, $0
        }'
done | awk -F '\t' '
    function cell(text) { gsub(/\|/, "\\|", text); gsub(/</, "\\&lt;", text); gsub(/\*/, "\\*", text); return text }
    function table(rows) { return "| column | kind | meaning |\n|---|---|---|\n" rows }
    function line() { return "| `" $3 "` | " $4 " | " cell($5) " |\n" }
    $1 != bench { bench = $1; order[++benches] = bench; last = 0 }
    $3 == "run_id" { last = 1000 } # what follows is shared, though a bench that times nothing lacks some
    $2 == "variant" { variants[bench] = variants[bench] "- `" $3 "`: " cell($5) "\n"; next }
    $2 == "run" { if (!($3 in of_run)) run_lines = run_lines line(); of_run[$3] = 1; next }
    { id = $3 "\t" $4 "\t" $5; count[id] += 1 + last; ids[++n] = id; of[n] = bench; text[n] = line() }
    END {
        for (i = 1; i <= n; i++) if (of[i] == bench && count[ids[i]] >= benches) shared = shared text[i]
        print "## Columns of every bench\n\n" table(shared)
        print "## What holds for a whole run\n\nLines of `machine.csv`, which `run_id` joins.\n\n" table(run_lines)
        for (b = 1; b <= benches; b++) {
            rows = ""
            for (i = 1; i <= n; i++) if (of[i] == order[b] && count[ids[i]] < benches) rows = rows text[i]
            print "## " order[b] "\n"
            if (variants[order[b]] != "") print "Variants:\n\n" variants[order[b]]
            printf "%s%s", table(rows), b < benches ? "\n" : ""
        }
    }'
