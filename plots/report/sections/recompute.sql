-- SPDX-License-Identifier: MIT
@section 95 bench_recompute: recomputed activations
@of bench_recompute

What the backward recomputes instead of keeping it. Times are predicted from models of few blocks, bytes by the plan of
the step before it runs. A group is as many blocks as its number says; nested keeps the inputs of about log2 L blocks; a
plan mixes two kinds so that the step fits the budget in brackets.

@figures recompute_

@view rows
SELECT *, max(peak_bytes) FILTER (WHERE variant = 'none' AND status = 'ok') OVER (PARTITION BY size, batch, seq,
    precision) - peak_bytes AS less_bytes,
    size || ', batch ' || batch || ', S ' || seq || ', ' || precision AS title FROM bench_recompute

@each SELECT title, min(id) AS place FROM rows GROUP BY title ORDER BY place

### {:title}

@view here
SELECT * FROM rows WHERE title = :title

The step of {n(o.step_ms)} ms takes {bytes(o.peak_bytes)}[[; selective saves
{bytes(o.peak_bytes - s.peak_bytes)} for {n(s.extra_pct)} % of time]][[; all but attention
{bytes(o.peak_bytes - a.peak_bytes)} for {n(a.extra_pct)} %]][[; whole blocks save
{bytes(o.peak_bytes - b.peak_bytes)} for {n(b.extra_pct)} %]].
@from here o LEFT JOIN here s ON s.variant = 'selective' AND s.status = 'ok' LEFT JOIN here b ON b.variant = 'block'
    AND b.status = 'ok' LEFT JOIN here a ON a.variant = 'but-attention' AND a.status = 'ok'
    WHERE o.variant = 'none' AND o.status = 'ok'

@table
SELECT status, variant || CASE
    WHEN variant GLOB 'plan*' THEN ' (' || coalesce(bytes(nullif(budget_bytes, 0)), '-') || ')'
    WHEN group_used > 0 THEN ' (' || group_used || ')'
    WHEN variant = 'offload' THEN ' (' || offload || ')'
    ELSE '' END AS way, schedule AS "recomputed", step_ms AS "step ms:",
    predicted_step_ms AS "predicted ms:", err_step_pct AS "off by %:", extra_pct AS "more time %:",
    peak_bytes / gib() AS "peak GiB:", err_bytes_pct AS "plan off the driver by %:",
    less_bytes / gib() AS "saved GiB:", saved_bytes / gib() AS "by the plan GiB:",
    ms_per_gib AS "ms for each GiB saved:", nullif(offloaded_bytes, 0)
    / gib() AS "to the host GiB?:", nullif(offload_exposed_ms, 0) AS "waited for it ms?:"
FROM here
WHERE status <> 'skip' ORDER BY id

@end
