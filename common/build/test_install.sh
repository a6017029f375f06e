#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs to a temporary folder, moves that elsewhere, and there: compiles a small C program against the library by
# pkg-config (or by stepbench.pc read by hand), runs it, lets every bench answer --version, draws figures, reports, completes.
# From the environment: CC, BUILD. Ends with the plain line "N passed, N failed".
set -u
export LC_ALL=C

passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check() { # TITLE COMMAND...
    local title=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL  $title"
        sed 's/^/      /' "$work/log"
    fi
}

prefix="$work/my usr"
umask 077 # as administrators have it
check 'make install' make --no-print-directory install BUILD="$BUILD" SETUP=0 DESTDIR="$work/stage" PREFIX="$prefix"
mv "$work/stage$prefix" "$prefix" || exit 1
check 'others can read all of it' bash -c '! find "$0" ! -type l ! -perm -444 -o -type d ! -perm -111 | grep .' "$prefix"
pc=$prefix/lib/pkgconfig/stepbench.pc

if command -v pkg-config >/dev/null; then
    flags=$(PKG_CONFIG_PATH=${pc%/*} pkg-config --cflags --libs stepbench)
else # its two lines, with ${libdir} and ${includedir} filled in
    flags=$(sed -nE "s|^(Cflags\|Libs): ||; t fill; b; :fill; s|\\$\{libdir\}|${prefix// /\\\\ }/lib|g
        s|\\$\{includedir\}|${prefix// /\\\\ }/include/stepbench|g; p" "$pc" | tr '\n' ' ')
fi
cat >"$work/user.c" <<'C'
#include <stdio.h>
#include "kernels/kernels.h"

int main(void)
{
    const sb_kernels *cpu = sb_kernels_cpu();
    sb_context *context;
    if (cpu->create(0, &context) != SB_OK || !sb_attention_find(cpu, "flash"))
        return 1;
    float values[4] = {0}, again[4] = {0};
    if (cpu->fill_normal(context, SB_FP32, values, 4, 1, 2, 1.f, NULL) != SB_OK ||
        cpu->copy(context, again, values, sizeof values, NULL) != SB_OK || again[3] == 0 || again[3] != values[3])
        return 2;
    cpu->destroy(context);
    return printf("%s\n", sb_kernels_cuda() ? "CUDA and CPU" : "CPU alone") < 0;
}
C
eval "flags=($flags)" # blanks in them are escaped
# shellcheck disable=SC2086 # a compiler may have options
check 'a C program is built with the flags of stepbench.pc' ${CC:-cc} -std=c11 -Wall -Werror "$work/user.c" \
    -o "$work/user" "${flags[@]}" "-Wl,-rpath,$prefix/lib"
check 'it runs' "$work/user"
check 'only the public functions are in the version of the API' bash -c "
    diff <(grep -ohE '\bsb_[a-z0-9_]+\(' '$prefix'/include/stepbench/kernels/*.h | tr -d '(' | sort -u | grep -xFf \
               <(nm -D --defined-only '$prefix/lib/libstepbench.so' | sed 's/.* //; s/@.*//')) \
         <(nm -D --defined-only '$prefix/lib/libstepbench.so' | sed -n 's/.* T \(.*\)@@STEPBENCH_[0-9.]*$/\1/p' | sort)"
check 'the library needs neither NCCL nor Gloo' bash -c "! readelf -d '$prefix/lib/libstepbench.so' | grep -E 'nccl|gloo'"
for bench in "$prefix"/bin/bench_*; do
    check "${bench##*/} --version" "$bench" --version
    check "${bench##*/} finds the installed library" bash -c "! ldd '$bench' | grep stepbench | grep -vF '$prefix/'"
done
mkdir -p "$work/mine/results" && cp -R results/h100-x2 "$work/mine/results/machine"
if [ -x "$prefix/bin/stepbench-report" ]; then
    check 'the installed programs draw figures' bash -c "cd '$work/mine/results/machine' &&
        '$prefix/bin/stepbench-plots' . && ls '$work'/mine/plots/machine/*.svg"
    check 'and the installed report shows them' bash -c "cd '$work/mine' && '$prefix/bin/stepbench-report' results/machine &&
        { ! command -v gnuplot || grep -q '<svg' results/machine/report.html; }"
fi
completed() { # WANTED BENCH WORD PREVIOUS_WORD
    bash -c '. "$0/share/bash-completion/completions/$1" && _stepbench "$0/bin/$1" "$2" "$3" && printf "%s\n" "${COMPREPLY[@]}"' \
        "$prefix" "$2" "$3" "$4" | grep -qxF -- "$1"
}
check 'completion of an option' completed --head-dim bench_flash --he bench_flash
check 'completion knows every bench' bash -c '. "$0/share/bash-completion/completions/stepbench"; cd "$0/bin" || exit
    for bench in bench_*; do complete -p "$bench" || exit; done' "$prefix"
check 'completion in a list of words' completed bf16,fp32 bench_flash bf16,fp3 --dtype
[ ! -e "$prefix/share/man/man1" ] || [ -z "$(ls "$prefix/share/man/man1")" ] ||
    check 'a manual page for each program, found by its name and question' bash -c 'cd "$0/bin" || exit
        for program in bench_* stepcmp stepckpt $([ ! -x stepbench-report ] || echo stepbench-report); do
            grep -qx "$program .- [A-Z][^.]*?" "../share/man/man1/$program.1" || { echo "$program"; exit 1; }
        done' "$prefix"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
