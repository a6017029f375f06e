#!/bin/bash
# SPDX-License-Identifier: MIT
# The rules of the tree that a grep can check; prints every breach as file:line. Ends with "lint: N rules hold" or exit 1.
# From the environment: OBJECTS, the folder of a build, and CC CXX CUDA_CFLAGS LIBRARY_CFLAGS HAVE_CUPTI HAVE_SQLITE HAVE_CMOCKA,
# as the Makefile found them.
set -u
: "${OBJECTS:?names the folder of a build; make lint sets it}"
export LC_ALL=C
held=0 broken=0

# rule TEXT: its breaches are on stdin, one a line.
rule() {
    local breaches
    breaches=$(cat)
    if [ -z "$breaches" ]; then
        held=$((held + 1))
    else
        broken=$((broken + 1))
        printf 'lint: %s\n' "$1" >&2
        sed 's/^/  /' <<<"$breaches" >&2
    fi
}
sources() { # FOLDER...
    local dir
    for dir; do
        [ -d "$dir" ] && find "$dir" -type f \( -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \)
    done | sort
}
room() { bash common/build/rooms.sh "$@"; }
rule 'every folder with sources is a room of common/build/rooms.txt, which only looks down' < <(room table)
rule 'an include stays in its room or goes down, to what rooms.txt allows' < <(room includes)
rule 'no circle of files' < <(room files)
rule 'no circle of folders' < <(room folders)
rule "no circle of sources by the symbols of their objects in $OBJECTS" < <(room links "$OBJECTS")
rule 'a header fronts at most four sources' < <(room fronts "$OBJECTS")
rule 'no folder holds more than 30 sources' < <(room size)
rule 'no function of host code is longer than 120 lines' < <(room functions)
rule 'the folders of tests mirror the rooms' < <(room mirror)
rule 'quoted includes are paths from the root of the project' < <(
    sources bench common kernels plots tests | xargs -r grep -noE '#[[:blank:]]*include[[:blank:]]*"[^"]+"' /dev/null |
        while IFS= read -r line; do
            path=${line#*\"}
            [ -e "${path%\"}" ] || echo "$line"
        done
)

rule 'no line of SQL is longer than 120 bytes, but for the titles of figures' < <(
    grep -nE '.{121}' plots/report/sections/*.sql plots/figures/*.sql | grep -v ':@draw ' | cut -c 1-100
)

rule "SQL rounds by round(): SQLite 3.43 to 3.45 cut off what printf('%.0f') rounds" < <(
    grep -nF '%.0f' plots/report/sections/*.sql plots/figures/*.sql
)

# A launch without a stream runs on the legacy stream, which waits for every other one.
rule 'a kernel launch names grid, block, shared memory and stream' < <(
    sources kernels | grep -E '\.cuh?$' | xargs -r awk '
        function count_arguments(text,   i, c, depth, commas) {
            for (i = 1; i <= length(text); i++) {
                c = substr(text, i, 1)
                if (c ~ /[({[]/) depth++
                else if (c ~ /[])}]/) depth--
                else if (c == "," && depth == 0) commas++
            }
            return commas + 1
        }
        FNR == 1 { first = 0 }
        { sub(/\/\/.*/, "") }
        !first && /<<</ { first = FNR; text = "" }
        first {
            text = text $0
            if (text ~ />>>/) {
                sub(/.*<<</, "", text)
                sub(/>>>.*/, "", text)
                if (count_arguments(text) < 4) print FILENAME ":" first ": <<<" text ">>>"
                first = 0
            }
        }' /dev/null
)

rule 'no fast-math on host code' < <(
    grep -nE -- '-ffast-math|-Ofast' Makefile
    sources bench common kernels plots tests | xargs -r grep -nE 'ffast-math|Ofast' /dev/null
)

rule 'what a bench prints goes through say(): printf ends on stderr while a session runs' < <(
    sources bench common kernels | xargs -r grep -nE '(^|[^a-z_])(v?printf|puts|putchar)\(' /dev/null
)

compiles() { # HEADER LANGUAGE COMPILER STANDARD
    # shellcheck disable=SC2086 # flags are meant to be split
    echo "#include \"$1\"" | $3 -std=$4 -D_GNU_SOURCE -fsyntax-only -Wall -Wextra -Werror -I. ${CUDA_CFLAGS:-} ${LIBRARY_CFLAGS:-} \
        -x $2 - 2>&1
}
# Without a library, what needs its headers is not checked.
absent=none
[ -n "${CUDA_CFLAGS:-}" ] || absent+='|cuda|nccl|nvml'
[ -n "${HAVE_CUPTI:-}" ] || absent+='|cupti'
[ -n "${HAVE_SQLITE:-}" ] || absent+='|sqlite3'
[ -n "${HAVE_CMOCKA:-}" ] || absent+='|cmocka'
rule 'every header compiles alone' < <(
    for header in $(sources bench common kernels plots tests | grep '\.h$'); do
        compiles "$header" c "${CC:-cc}" c11 | grep -m 1 error | while IFS= read -r breach; do
            case $header in
                # What only .cu files include may be C++.
                kernels/cuda/*) [ -z "${CUDA_CFLAGS:-}" ] || compiles "$header" c++ "${CXX:-c++}" c++17 | grep -m 1 error ;;
                *) [[ $breach =~ fatal\ error:\ ($absent) ]] || echo "$breach" ;;
            esac
        done
    done
)
rule 'kernels/kernels.h is C++, too' < <(compiles kernels/kernels.h c++ "${CXX:-c++}" c++17)

rule 'the first lines say the licence' < <(
    {
        sources bench common kernels plots tests
        find Makefile run_all.sh .ci/run common plots tests -name Makefile -o -name '*.sh' -o -type f -name run -o -name '*.gp'
    } | while read -r file; do
        [[ $(head -n 2 "$file") == *'SPDX-License-Identifier: MIT'* ]] || echo "$file:1: no SPDX line"
    done
)

# Other major versions break lines elsewhere.
if clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
    rule 'clang-format changes nothing' < <(
        sources bench common kernels plots tests | xargs -r -P 2 -n 40 clang-format --dry-run --Werror 2>&1 |
            sed -nE 's/^([^:]+:[0-9]+):[0-9]+: error: .*/\1/p' | sort -t : -u -k 1,1
    )
else
    echo 'lint: formatting skipped, there is no clang-format 14' >&2
fi

rule 'a comment says what it speaks of: it does not begin with "Of", "Those of" or "The same of"' < <(
    sources bench common kernels plots tests |
        xargs -r grep -nE '/\* (Of|Those of|The same of) ' /dev/null
)

rule 'no blanks at the end of a line' < <(
    {
        sources bench common kernels plots tests
        find Makefile run_all.sh .ci common plots tests -name Makefile -o -name '*.sh' -o -type f -name run -o -name '*.gp'
    } | xargs grep -nE '[[:blank:]]+$' /dev/null
)

rule 'every mutant of tests/mutants/list.txt changes its file' < <(bash tests/mutants/run.sh --apply)

if [ "$broken" -gt 0 ]; then
    echo "lint: $held rules hold, $broken broken" >&2
    exit 1
fi
echo "lint: $held rules hold"
