#!/bin/bash
# SPDX-License-Identifier: MIT
# Files of choices of algorithms as one that is shipped, on stdout: the last choice of each shape and version of the library,
# without times and without rivals, in an order in which neighbours have much in common, an empty cell for that of the row
# above. Files with all columns, and files of this form, are read alike.
# usage: choices_merge.sh FILE [FILE ...]
set -u -o pipefail
columns=library,algorithm,algorithm_name,workspace_bytes,dtype,dtype_out,transpose_a,transpose_b,adds,split,dtype_b,scaling_a,scaling_b,sums,n,k,m,lda,ldb,ldc,ldd
{
    echo "$columns"
    awk -F, -v columns="$columns" '
        function value(name) { return (name in at) ? $at[name] : 0 }
        BEGIN { n = split(columns, name, ",") }
        FNR == 1 { delete at; for (i = 1; i <= NF; i++) at[$i] = i; split("", above); next }
        {
            for (i = 1; i <= NF; i++) above[i] = $i = $i == "" ? above[i] : $i
            if (("rival" in at) && $at["rival"] > 0) next
            sub(/(00)+$/, "", $at["algorithm"])
            line = key = ""
            for (i = 1; i <= n; i++) line = line (i > 1 ? "," : "") value(name[i])
            for (i = 1; i <= n; i++) if (name[i] !~ /^algorithm/) key = key "," value(name[i])
            last[key] = line
        }
        END { for (key in last) print last[key] }' "$@" |
        LC_ALL=C sort -t, -k1,2 -k4,14 -k15,15n -k16,16n -k17,17n |
        awk -F, -v OFS=, '{ for (i = 1; i <= NF; i++) { cell = $i ""; if (cell == above[i] "") $i = ""; above[i] = cell } print }'
}
