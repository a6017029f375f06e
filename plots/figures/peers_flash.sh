# SPDX-License-Identifier: MIT
# A row for each shape of peer_flash.csv: its name and each peer's ratios, forward and backward. Where we lead least comes first.
# shellcheck shell=sh disable=SC2154,SC2034
peers=$results/peer_flash.csv
[ -s "$peers" ] || exit 0
wide=
if head -n 1 "$peers" | grep -q ',head_dim_v,'; then wide=,head_dim_v; fi
"$report" --tidy "$peers" "$work/peers.csv" --axes "impl,batch,heads,heads_kv,seq,head_dim$wide,causal,layout,policy" \
    dtype=bf16 >"$work/caption"
caption=$(basename "$results")$(sed -n 1p "$work/caption")
[ -s "$work/caption" ] || exit 0
# Texts in quotes may have commas.
sed 's/"[^"]*"//g' "$work/peers.csv" | awk -F , '
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    {
        heads = $at["heads"] == $at["heads_kv"] ? $at["heads"] : $at["heads"] "/" $at["heads_kv"]
        wide = "head_dim_v" in at && $at["head_dim_v"] > 0 ? "/" $at["head_dim_v"] : ""
        shape = "B " $at["batch"] "  H " heads "  S " $at["seq"] "  D " $at["head_dim"] wide ($at["causal"] == 1 ? "" : "  full")
        forward[shape, $at["impl"]] = $at["fwd_ratio"]; backward[shape, $at["impl"]] = $at["bwd_ratio"]
        if ($at["fwd_ratio"] == "") next
        if (!(shape in least) || $at["fwd_ratio"] < least[shape]) least[shape] = $at["fwd_ratio"]
        if ($at["bwd_ratio"] != "" && $at["bwd_ratio"] < least[shape]) least[shape] = $at["bwd_ratio"]
    }
    function of(ratio) { return ratio == "" ? "nan" : ratio }
    END {
        for (shape in least) {
            line = least[shape] "," shape
            for (i = split("fa4 sdpa_cudnn sdpa_fa2", impl, " "); i > 0; i--)
                line = line "," of(forward[shape, impl[i]]) "," of(backward[shape, impl[i]])
            print line
        }
    }' | sort -t , -g >"$work/rows.csv"
[ -s "$work/rows.csv" ] || exit 0
{
    echo 'least,shape,fa2_fwd,fa2_bwd,cudnn_fwd,cudnn_bwd,fa4_fwd,fa4_bwd'
    cat "$work/rows.csv"
} >"$data"
draw peers_flash "Attention in bf16: the time of peers over ours" "shapes = $(wc -l <"$work/rows.csv")" \
    "least = $(sed '1!d; s/,.*//' "$work/rows.csv")" \
    "most = $(cut -d , -f 3- "$work/rows.csv" | tr , '\n' | grep -v nan | sort -g | tail -n 1)"
