# SPDX-License-Identifier: MIT
# Recorded steps of data parallelism: a file for each recording, from the simplest strategy to the best, then any others.
# shellcheck shell=sh disable=SC2154
. "$plots/shared/timeline.sh"

# Two steps of zero1 are recorded, as the gathers after an update run beside the next forward. This cuts the steady one out of
# rank 0's spans: from the first gather of the first step to the first gather of the second. Its sums are not known, as short
# spans were joined: 0 says so.
one_step() { # FILE
    awk -F, -v OFS=, '
        function overlap(a, b) { return (b < to ? b : to) - (a > from ? a : from) }
        /^#/ { if (!about) about = $0; next }
        !head { head = $0; next }
        $(NF - 5) == 0 {
            row[++n] = $0
            if ($(NF - 4) != "communication") next
            if ($(NF - 2) !~ /gather/) before = 0
            else if (!before) { before = 1; gathers[++groups] = $(NF - 1) }
        }
        END {
            if (groups != 2) exit 1
            from = gathers[1]; to = gathers[2]
            for (i = 1; i <= n; i++) {
                $0 = row[i]
                if (overlap($(NF - 1), $NF) <= 0) continue
                $(NF - 1) = ($(NF - 1) > from ? $(NF - 1) : from) - from
                $NF = ($NF < to ? $NF : to) - from
                out[++kept] = $0
            }
            sub(/: [0-9.]* ms; compute .*/, "", about)
            print head
            printf "%s: %.3f ms; compute 0 ms; communication 0 ms, of it exposed 0 ms; idle 0 ms\n", about, (to - from) / 1e3
            for (i = 1; i <= kept; i++) print out[i]
        }' "$1"
}

set --
for strategy in naive flat overlap zero1 bucketed fused; do
    [ ! -s "$results/timeline/$strategy.csv" ] || set -- "$@" "$results/timeline/$strategy.csv"
done
for file in "$results"/timeline/*.csv; do
    case ${file##*/} in
        naive.csv | flat.csv | overlap.csv | bucketed.csv | zero1.csv | fused.csv) continue ;;
        zero2.csv | fsdp*.csv | hsdp.csv) continue ;; # fsdp_timeline has them
    esac
    [ ! -s "$file" ] || set -- "$@" "$file"
done
count=0 given=$#
for file; do
    count=$((count + 1))
    case ${file##*/} in
        zero1*.csv) ! one_step "$file" >"$work/one-step-$count.csv" || file=$work/one-step-$count.csv ;;
    esac
    set -- "$@" "$file"
done
shift "$given"
draw_timeline ddp_timeline "Recorded training steps" \
    '!$7 ? "%.1f ms, the second of two" : "%.1f ms, communication %.1f, exposed %.1f", $1, $7, $12' "$@"
