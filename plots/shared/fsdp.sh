# SPDX-License-Identifier: MIT
# What the figures of bench_fsdp share: options that only some variants have, and what rows of the others are drawn with.
# shellcheck shell=sh disable=SC2154,SC2034
fsdp=$results/bench_fsdp.csv
fsdp_axes=bucket_mb,prefetch,free_every,gather,replicas,small,reduce_dtype
has_column() { head -n 1 "$data" | tr , '\n' | grep -qx "$1"; }

# usual COLUMN ...: sets columns, those that $data has, and wanted, what a row must have in them if it has anything.
usual() {
    columns='' wanted=''
    for each; do
        has_column "$each" || continue
        case $each in
            gather) value=nccl ;;
            replicas) value=2 ;;
            small) value=sharded ;;
            reduce_dtype) value=grad ;;
            *) value=1 ;;
        esac
        columns="$columns $each" wanted="$wanted $value"
    done
}
