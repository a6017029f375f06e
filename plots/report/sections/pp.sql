-- SPDX-License-Identifier: MIT
@section 132 Sharing the depth: stages of a pipeline
@of bench_pp

@view ok
SELECT * FROM bench_pp WHERE status = 'ok'

Each rank has some of the layers, and {micro_batches} micro-batches go through them ({size}, S {seq}, {precision}). A
step takes {ranks} ranks {step_ms} ms by {variant}, and each of them is idle for {bubble_pct} % of it; the schedule
itself, with the measured times of each stage, predicts {predicted_bubble_pct} %[[. One rank takes {one_rank_ms} ms:
{speedup} times as long]].
@from ok WHERE ranks > 1 AND step_ms IS NOT NULL AND coalesce(mesh, 'pp') = 'pp' ORDER BY ranks DESC, step_ms LIMIT 1

Measured and predicted bubbles differ by at most {max(abs(err_points))} points, in {count(*)} rows.
@from ok WHERE ranks > 1 AND err_points IS NOT NULL HAVING count(*) > 1

@figures pp_recorded

@table
SELECT status, variant AS schedule, ranks AS "ranks:", size || ', S ' || seq || ', ' || precision AS model,
    micro_batches || ' x ' || batch AS "micro-batches", plan_chunks AS "chunks:", cut AS blocks,
    iif(coalesce(mesh, 'pp') = 'pp', '', mesh || ', ' || strategy) AS "mesh?", transport, updated AS "update",
    iif(clip > 0, 'yes', '') AS "clip?",
    step_ms AS "step ms:", bubble_pct AS "bubble %:", predicted_bubble_pct AS "predicted %:", err_points AS "points:",
    n(stage_min_ms) || ' to ' || n(stage_max_ms) AS "stage ms", hop_us AS "hop us:",
    send_wait_ms AS "waits to send ms:",
    peak_bytes_first / gib() AS "first GiB:", peak_bytes_last / gib() AS "last GiB:", peak_bytes / gib() AS "most GiB?",
    in_flight AS "holds:",
    plan_pct AS "plan % of bound:", tokens_per_s AS "tokens/s:", mfu_causal_pct AS "MFU %?:",
    iif(fp8_share_pct > 0, mfu_bf16_pct, NULL) AS "at bf16's peak?:",
    one_rank_ms AS "one rank ms:", speedup AS "times one rank:", launched
FROM bench_pp WHERE status <> 'skip' AND (step_ms IS NOT NULL OR status <> 'ok') ORDER BY id

{sum(status = 'ok')} of {count(*)} cases agree with one rank;
{coalesce(sum(status = 'ok' AND err_loss = 0 AND err_grad = 0 AND err_param = 0), 0)} have its bits in loss, gradients
and parameters[[; clipped norms differ by {max(iif(clip > 0, err_norm, NULL))} at most]][[; first to fail:
{max(iif(status = 'fail', reason, NULL))}]].
@from bench_pp WHERE "check" IS NOT 0 AND status IN ('ok', 'fail') HAVING count(*)

Time of a step with blocks divided by measured cost over one with as many blocks in each stage, {a.variant}, {a.ranks}
ranks: {a.step_ms / b.step_ms} ({a.cut} against {b.cut}).
@from ok a JOIN ok b ON a.balance = 'measured' AND b.balance = 'even' AND a.variant = b.variant
    AND json_remove(a.options, '$.balance') = json_remove(b.options, '$.balance') AND a.run_of = b.run_of
    ORDER BY a.ranks DESC, a.id LIMIT 1

Compared with PyTorch's pipelining, a compiled stage on each GPU: its time over ours
@from judged WHERE table_ = 'bench_pp' LIMIT 1

@table
SELECT peer, work, place AS "case", ratio AS "ratio:", coalesce(why, '') AS "no ratio, because?" FROM judged
    WHERE table_ = 'bench_pp' ORDER BY peer, id
