#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: check_ptxas.sh [--some] spill_free.txt ptxas-log...
# Fails when a kernel listed in spill_free.txt spills registers, when a listed pattern names no kernel (not with --some:
# only some kernels were compiled), or when ptxas serialized the wgmma pipeline of a Hopper kernel (its "Potential
# Performance Loss" warnings). From the environment: NVCC_VERSION, and WERROR, which CI sets.
set -u

# The list holds for the architectures and the toolkit that it names. With others the kernels are as right, and at most
# slower, and who only wants to measure a GPU can't mend that: the build goes on after a line for each architecture. With
# WERROR another toolkit is no excuse, or the check would vanish from CI with its next toolkit.
some=0
[ "$1" != --some ] || { some=1; shift; }
list=$1
shift
[ $# -gt 0 ] || exit 0

awk -v list="$list" -v some="$some" -v toolkit="${NVCC_VERSION:-}" -v strict="${WERROR:+1}" '
    function note(what, bytes, text) {
        if (arch in measured && (strict || toolkit == measured_with)) {
            printf "%s: %s\n", FILENAME, text
            bad = 1
            return
        }
        if (!(arch in kernels)) archs[++n_archs] = arch
        kernels[arch]++
        if (bytes > most[arch]) most[arch] = bytes
        if (!((arch, what) in named)) names[arch] = names[arch] (names[arch] ? ", " : "") what
        named[arch, what] = 1
    }
    BEGIN {
        while ((getline line < list) > 0) {
            sub(/#.*/, "", line)
            sub(/\r$/, "", line)
            words = split(line, word, " ")
            if (word[1] == "measured") { # measured TOOLKIT ARCHITECTURE...
                measured_with = word[2]
                measured_on = word[3]
                for (i = 3; i <= words; i++) measured[word[i]] = 1
            } else if (words && word[1] != "judged") patterns[++n] = word[1]
        }
    }
    FNR == 1 { arch = "" }
    /Compiling entry function/ { split($0, part, "\047"); arch = part[4] }
    /Function properties for/ { kernel = $NF }
    /bytes spill stores/ {
        by = 0
        for (i = 1; i <= n; i++)
            if (kernel ~ patterns[i]) {
                matched[i] = 1
                if (!by) by = i
            }
        if (by && !/ 0 bytes spill stores, 0 bytes spill loads/) {
            sub(/^ +/, "")
            match($0, /[0-9]+ bytes spill stores/)
            note(patterns[by], substr($0, RSTART) + 0,
                 sprintf("%s (%s) is listed as spill-free: %s", kernel, arch, $0))
        }
    }
    FILENAME ~ /(^|[\/.])hopper\./ && /Potential Performance Loss|wgmma.*serializ/ {
        arch = "sm_90a"
        note("serialized wgmma", 0, $0)
    }
    END {
        for (i = 1; i <= n && !some; i++)
            if (!(i in matched)) {
                printf "%s: no kernel matches %s\n", list, patterns[i]
                bad = 1
            }
        for (i = 1; i <= n_archs; i++)
            printf "warning: %s: %d instances of kernels that spill nothing on %s with nvcc %s spill up to %d bytes a " \
                   "thread with nvcc %s (%s): right, but perhaps slower than they could be\n",
                   archs[i], kernels[archs[i]], measured_on, measured_with, most[archs[i]], toolkit, names[archs[i]]
        exit bad
    }' "$@" >&2
