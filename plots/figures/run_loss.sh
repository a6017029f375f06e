# SPDX-License-Identifier: MIT
# The newest loss curve of each kind of run, from its log below run/; beside it PyTorch's, where tests/peers/run.py left one.
# shellcheck shell=sh disable=SC2154
asked "SELECT log || char(9) || coalesce(floor_loss, 0) || char(9) || coalesce(entropy_token, 0) || char(9) || coalesce(entropy_none, 0)
    || char(9) || 'Loss of ' || size || ', S ' || seq || ', ' || precision || ', ' || strategy || ' on ' || ranks || iif(ranks > 1, ' ranks', ' rank')
    || char(9) || machine || ', ' || gpu || ', ' || substr(utc, 1, 10) FROM bench_run r
    WHERE status = 'ok' AND log <> '' AND variant = 'log' AND log NOT GLOB '*[^a-z0-9.-]*'
        AND id = (SELECT max(id) FROM bench_run l WHERE l.log = r.log AND l.status = 'ok') ORDER BY id" >"$work/runs"
while read -r log floor one none title; do
    file=$results/run/$log.csv
    [ -s "$file" ] || continue
    # Only numbers: what others send is no code.
    grep -v '^#' "$file" | tr -cd '0-9a-z_,.+\n-' >"$work/$log"
    [ "$(wc -l <"$work/$log")" -gt 2 ] || continue
    peer=
    if [ -s "$results/run/$log-torch.csv" ]; then
        grep -v '^#' "$results/run/$log-torch.csv" | tr -cd '0-9a-z_,.+\n-' >"$work/$log-torch"
        peer=$log-torch
    fi
    {
        echo "title = $(quoted "${title%%"$tab"*}"); caption = $(quoted "${title#*"$tab"}")"
        echo "curve = $(quoted "$log"); peer = $(quoted "$peer")"
        echo "floor_loss = 0.0 + $(quoted "$floor"); one_loss = 0.0 + $(quoted "$one"); none_loss = 0.0 + $(quoted "$none")"
    } >"$work/run_loss_$log.gp"
    echo "run_loss run_loss_$log" >>"$work/figures"
done <"$work/runs"
