#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: gpu_test_summary.sh LOG    what `make test-gpu` printed, as a line for each test: verdict, seconds, cases that
#                                   passed/failed/were skipped, name; then its closing line. For results/<machine>/checks/.
set -u
[ $# = 1 ] && [ -r "$1" ] || {
    echo 'usage: gpu_test_summary.sh LOG, a file with what make test-gpu printed' >&2
    exit 2
}
closing=$(tail -n 1 "$1")
[[ $closing =~ ^[0-9]+\ passed,\ [0-9]+\ failed ]] || {
    echo "gpu_test_summary.sh: $1 does not end with the line of make test-gpu: it is not whole" >&2
    exit 2
}
awk '
    /^== / { title = substr($0, 4); cases = "-" }
    /^[0-9]+ passed, [0-9]+ failed/ { cases = $1 "/" $3 "/" ($5 == "" ? 0 : $5) }
    /PASSED .* test\(s\)/ { cases = $4 "/0/0" }
    /^-- ok, / { print_line("ok", $3) }
    /^-- FAILED/ { print_line("FAILED", "-") }
    /^-- skipped/ { print_line("skipped", "-") }
    function print_line(verdict, seconds) { printf "%-7s %4s %10s  %s\n", verdict, seconds, cases, title }
' "$1" | LC_ALL=C sort -k4
echo "$closing"
