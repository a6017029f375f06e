#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: exports.sh VERSION PUBLIC_HEADER... -- PRIVATE_HEADER...
# Prints the linker's version script of libstepbench.so: what the public headers declare belongs to the
# node STEPBENCH_<major>.<minor>, what the private ones declare (for the suite's own programs and tests, without any
# promise) to STEPBENCH_PRIVATE; nothing else is visible. A declaration starts at the start of its line.
set -eu
export LC_ALL=C

symbols() { # HEADER...
    [ $# = 0 ] || cat "$@" | sed -nE '
        s/^extern const [a-z_0-9]+ \*?([a-z_][a-zA-Z0-9_]*);.*/        \1;/p; t
        /^(typedef|static|enum|extern|[A-Z_]+ )/d
        s/^[a-zA-Z][^(]*[ *]([a-z_][a-zA-Z0-9_]*)\(.*/        \1;/p' | sort -u
}

version=${1%.*}
shift
public=()
while [ "$1" != -- ]; do
    public+=("$1")
    shift
done
shift
printf 'STEPBENCH_%s {\n    global:\n%s\n};\n' "$version" "$(symbols "${public[@]}")"
printf 'STEPBENCH_PRIVATE {\n    global:\n%s\n    local: *;\n};\n' "$(symbols "$@")"
