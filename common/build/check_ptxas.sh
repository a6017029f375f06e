#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: check_ptxas.sh spill_free.txt ptxas-log...
# Fails when a kernel listed in spill_free.txt spills registers, when a listed pattern names no kernel, or when ptxas
# serialized the wgmma pipeline of a Hopper kernel (its "Potential Performance Loss" warnings).
set -u

list=$1
shift
[ $# -gt 0 ] || exit 0

awk -v list="$list" '
    BEGIN {
        while ((getline line < list) > 0) {
            sub(/#.*/, "", line)
            gsub(/[ \t\r]/, "", line)
            if (line != "") patterns[++n] = line
        }
    }
    FNR == 1 { arch = "" }
    /Compiling entry function/ { split($0, part, "\047"); arch = part[4] }
    /Function properties for/ { kernel = $NF }
    /bytes spill stores/ {
        for (i = 1; i <= n; i++)
            if (kernel ~ patterns[i]) {
                matched[i] = 1
                if (!/ 0 bytes spill stores, 0 bytes spill loads/) {
                    sub(/^ +/, "")
                    printf "%s: %s (%s) is listed as spill-free: %s\n", FILENAME, kernel, arch, $0
                    bad = 1
                }
            }
    }
    FILENAME ~ /(^|[\/.])hopper\./ && /Potential Performance Loss|wgmma.*serializ/ {
        printf "%s: %s\n", FILENAME, $0
        bad = 1
    }
    END {
        for (i = 1; i <= n; i++)
            if (!(i in matched)) {
                printf "%s: no kernel matches %s\n", list, patterns[i]
                bad = 1
            }
        exit bad
    }' "$@" >&2
