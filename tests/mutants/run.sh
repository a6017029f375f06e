#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: run.sh FOLDER [ci | PATTERN...]
#        run.sh --apply
# Breaks a copy of the tree in one place after another, as list.txt says, builds what is needed without CUDA, and runs the
# tests that must fail then. All mutants; those marked ci; or those whose title has a PATTERN. The copy and its build stay
# in FOLDER for the next time. First the tests must pass on the unbroken copy, unless TREE_PASSED says that they have. Ends
# with "N passed, N failed": passed are mutants that were caught; one that survives, does not change its file or does not
# compile, has failed. --apply prints those that would not change a line.
set -u
export LC_ALL=C
list=$(cd "$(dirname "$0")" && pwd)/list.txt
[ $# -gt 0 ] || { sed -n '3,4s/^# //p' "$0" >&2; exit 2; }

titles=() files=() seds=() tests=() marks=() file='' test='' inside=
while IFS= read -r line; do
    case $line in
    'file '*) file=${line#file } ;;
    'mutant '*) titles+=("${line#mutant }") files+=("$file") seds+=('') tests+=("$test") marks+=('') inside=yes ;;
    'sed '*) seds[-1]=${line#sed } ;;
    'test '*) if [ -n "$inside" ]; then tests[-1]=${line#test }; else test=${line#test }; fi ;;
    ci) marks[-1]=ci ;;
    '') inside='' ;;
    '#'*) ;;
    *) echo "$list: '$line' is none of mutant, file, sed, test, ci" >&2; exit 2 ;;
    esac
done <"$list"

if [ "$1" = --apply ]; then
    for i in "${!titles[@]}"; do
        sed -e "${seds[$i]}" "${files[$i]}" 2>/dev/null | cmp -s - "${files[$i]}" || [ ! -f "${files[$i]}" ] || continue
        echo "${list#"$PWD"/}: '${titles[$i]}' changes nothing in ${files[$i]}"
    done
    exit 0
fi

mkdir -p "$1" || exit 1
folder=$(cd "$1" && pwd) tree=$folder/tree log=$folder/log.txt
shift
jobs=$(nproc)
export STEPBENCH_COMMIT=mutant STEPBENCH_DIRTY=1 MAKEFLAGS= SETUP=0

wanted() { # INDEX PATTERN...
    local i=$1 pattern
    shift
    [ $# -gt 0 ] || return 0
    [ "$*" != ci ] || { [ -n "${marks[$i]}" ]; return; }
    for pattern; do [[ ${titles[$i]} != *"$pattern"* ]] || return 0; done
    return 1
}

# Only what differs is copied, so that only that is built again; and what is gone goes.
copy() {
    mkdir -p "$tree"
    git ls-files -co --exclude-standard | while IFS= read -r path; do [ ! -f "$path" ] || echo "$path"; done |
        sort >"$folder/files.txt"
    (cd "$tree" && find . -path ./build -prune -o -type f -print) | sed 's|^\./||' | sort |
        comm -13 "$folder/files.txt" - | while IFS= read -r path; do rm -f "$tree/$path"; done
    while IFS= read -r path; do
        cmp -s "$path" "$tree/$path" || { mkdir -p "$tree/$(dirname "$path")" && cp "$path" "$tree/$path"; }
    done <"$folder/files.txt"
}

programs_of() { # TEST...
    local t
    for t; do printf 'build/cpu/tests/%s ' "$t"; done
    # Those that run benches, the report, stepcmp or stepckpt.
    case " $*" in *' bench/'* | *' report/'*) printf all && return ;; esac
    for t; do ! grep -qsE 'STEPBENCH_BIN|bench_run\.h|ddp_rows\.h' "tests/$t.c" || { printf all && return; }; done
}

build() { # TEST...
    # shellcheck disable=SC2046
    (cd "$tree" && make -j"$jobs" CUDA=0 BUILD=build/cpu OPT=-O1 WERROR= $(programs_of "$@")) >"$log" 2>&1
}

# Whether the test passes. It is not awaited once one of its cases has failed: ranks of a mutant may wait for each other for long.
passes() ( # TEST
    cd "$tree" || exit
    STEPBENCH_BIN=build/cpu timeout -k 5 300 "build/cpu/tests/$1" >"$log" 2>&1 </dev/null &
    while kill -0 $!; do
        ! grep -q '^\[  FAILED  \]' "$log" || kill -KILL -- -$! # of the group that timeout has made
        sleep 0.2
    done
    wait $!
) 2>/dev/null

# Exit code 0: all pass. 1: one fails. 2: it does not build.
try() { # TEST...
    local t
    build "$@" || return 2
    for t; do passes "$t" || return 1; done
}

copy
passed=0 failed=0
declare -A whole
for i in "${!titles[@]}"; do
    wanted "$i" "$@" || continue
    for t in ${tests[$i]}; do whole[$t]=yes; done
done
needed=("${!whole[@]}")
if [ ${#needed[@]} -gt 0 ] && [ -z "${TREE_PASSED-}" ] && ! { build "${needed[@]}" && (cd "$tree" && STEPBENCH_BIN=build/cpu \
    bash common/build/run_tests.sh build/cpu/tests "${needed[@]/#/build/cpu/tests/}") >"$log" 2>&1; }; then
    echo '  the tree as it is does not build, or a test fails:' >&2
    tail -n 40 "$log" >&2
    exit 1
fi
for i in "${!titles[@]}"; do
    wanted "$i" "$@" || continue
    file=$tree/${files[$i]} start=$SECONDS
    sed -i.whole -e "${seds[$i]}" "$file" || exit 1
    if cmp -s "$file" "$file.whole"; then
        verdict='CHANGES NOTHING'
    else
        # shellcheck disable=SC2086
        try ${tests[$i]}
        case $? in 0) verdict=SURVIVED ;; 1) verdict=caught ;; *) verdict='DOES NOT BUILD' ;; esac
    fi
    mv "$file.whole" "$file"
    touch "$file"
    [ "$verdict" = caught ] && passed=$((passed + 1)) || failed=$((failed + 1))
    printf '  %-15s %s (%s, %d s)\n' "$verdict" "${titles[$i]}" "${tests[$i]}" $((SECONDS - start))
    [ "$verdict" != 'DOES NOT BUILD' ] || grep -m 3 -E 'error|Error' "$log" | sed 's/^/        /'
done
[ $((passed + failed)) -gt 0 ] || { echo "no mutant is named so" >&2; exit 2; }
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
