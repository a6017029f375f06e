# SPDX-License-Identifier: MIT
# A figure for each set of options that buckets of several sizes ran with.
# shellcheck shell=sh disable=SC2154
. "$plots/shared/ddp.sh"
buckets() { # RANKS KIND TEXT CONDITION ...
    on=$1 kind=$2 of=$3
    shift 3
    for how in $(each_of how "$@" variant=bucketed); do
        pick_ddp "$@" variant=bucketed "how=$how" || continue
        several "$(values bucket_mb)" || continue
        with='' suffix=''
        [ "$how" = plain ] || with=", $(echo "$how" | tr - ' ')" suffix=_$how
        draw "ddp_buckets_$kind$suffix" "Buckets on $on ranks, $of$with ($shape)" "seqs_shown=$(values seq)" \
            "buckets=$(values bucket_mb)"
    done
}
for_batches buckets
