# SPDX-License-Identifier: MIT
# A row for each shape: its name and the ratios of each peer that the report forms, forward and backward. Where we lead least comes first.
# shellcheck shell=sh disable=SC2154,SC2034
[ -s "$results/peer_flash.csv" ] || exit 0
"$report" --flash-peers "$results" "$work/peers.csv"
"$report" --tidy "$results/peer_flash.csv" "$work/tidy.csv" dtype=bf16 >"$work/caption"
caption=$(basename "$results")$(sed -n 1p "$work/caption")
sed 1d "$work/peers.csv" | sort -t , -g >"$work/rows.csv"
[ -s "$work/rows.csv" ] || exit 0
{
    sed 1q "$work/peers.csv"
    cat "$work/rows.csv"
} >"$data"
draw peers_flash "Attention in bf16: the time of peers over ours" "shapes:=$(wc -l <"$work/rows.csv")" \
    "least:=$(sed '1!d; s/,.*//' "$work/rows.csv")" \
    "most:=$(cut -d , -f 2-7 "$work/rows.csv" | tr , '\n' | grep -v nan | sort -g | tail -n 1)"
