-- SPDX-License-Identifier: MIT
@section 60 bench_transformer: a whole training step
@of bench_transformer

@figures transformer_

@use transformer_warm

-- The most rows that differ only in size, context and precision.
@slice steps FROM warm ALONG size, seq, precision

{shape(bench, json_remove(options, '$.size', '$.seq', '$.precision'))};
{iif((SELECT variant FROM level) = 'graph', 'the step is one CUDA graph', 'fused kernels launched one by one')}. Times
are means and standard deviations over the measured steps; rates are for the median step. PyTorch's columns are its time
and its peak memory over ours: above 1, ours is faster or smaller.
@from steps

@table
SELECT status, precision, size, seq AS "S:", pm(fwd_mean_ms, fwd_std_ms) AS "forward ms:",
    pm(bwd_mean_ms, bwd_std_ms) AS "backward ms:", pm(opt_mean_ms, opt_std_ms) AS "AdamW ms:",
    pm(step_mean_ms, step_std_ms) AS "step ms:", tokens_per_s AS "tokens/s:", tflops AS "TFLOP/s:",
    mfu_causal_pct AS "MFU %?:", mfu_full_pct AS "full?:",
    iif(precision LIKE 'fp8%', NULL, ceiling_pct) AS "% of GEMM ceiling?:",
    peak_bytes / gib() AS "peak GiB:", (SELECT n(min(ratio)) FROM judged j WHERE j.row_id = s.id
    AND table_ = 'bench_transformer' AND memory IS NOT NULL AND why IS NULL) AS "PyTorch time?:",
    (SELECT n(memory) FROM judged j WHERE j.row_id = s.id AND table_ = 'bench_transformer' AND memory IS NOT NULL
    AND why IS NULL ORDER BY ratio LIMIT 1) AS "memory?:"
FROM steps s NATURAL
JOIN level ORDER BY (SELECT min(id) FROM steps p WHERE p.precision = s.precision), size_place(size), seq

By itself, AdamW reaches {opt_tb_s} TB/s and would take
{printf('%d', round(100 * opt_alone_ms / step_ms))} % of the step of
{size}, S {seq}, {precision}.
@from (SELECT * FROM steps NATURAL JOIN level WHERE status = 'ok' AND opt_alone_ms / step_ms > 0
    ORDER BY opt_alone_ms / step_ms DESC LIMIT 1)

@view fused
SELECT precision, size, seq, max(iif(variant = 'none', coalesce(n(step_ms), status), NULL)) AS none,
    max(iif(variant = 'kernels', coalesce(n(step_ms), status), NULL)) AS kernels,
    max(iif(variant = 'graph', coalesce(n(step_ms), status), NULL)) AS graph, max(iif(variant = 'none', step_ms, NULL))
    / max(iif(variant = 'graph', step_ms, NULL)) AS ratio, min(id) AS place
FROM steps GROUP BY precision, size, seq HAVING count(DISTINCT variant) > 1

What fusion gives, step ms (none: an eager framework's ops)
@from (SELECT 1 FROM fused LIMIT 1)

@table
SELECT precision, size, seq AS "S:", none AS "none:", kernels AS "kernels:", graph AS "graph:", ratio AS "none / graph:"
    FROM fused ORDER BY precision, size_place(size), seq

@slice by_mode FROM warm ALONG size, seq, precision, mode

@view modes
SELECT precision, size, seq, mode, iif(status = 'ok', pm(step_mean_ms, step_std_ms), status) AS cell,
    count(*) OVER (PARTITION BY precision, size, seq) AS n_ FROM by_mode NATURAL JOIN level

Steps that do a part of the work, ms: a forward by itself keeps nothing for a backward, and a forward with its backward
leaves the parameters as they are
@from (SELECT 1 FROM modes WHERE n_ > 1 LIMIT 1)

@table
SELECT precision, size, seq AS "S:", max(iif(mode = 'forward', cell, NULL)) AS "forward:",
    max(iif(mode = 'forward-backward', cell, NULL)) AS "forward and backward:",
    max(iif(mode = 'train-step', cell, NULL)) AS "train step:"
FROM modes
WHERE n_ > 1 GROUP BY precision, size, seq ORDER BY precision, size_place(size), seq

### Does float8 pay? The step

@use float8_steps

With the products of the blocks in float8, a step of {size} at S {seq} is {n(speedup_bf16)} times as fast as in bf16
({precision}); that is the least of {steps} steps{iif(gap IS NULL, ', and no run here says what it costs in loss',
', and its loss after a run is ' || n(abs(gap)) || ' % ' || iif(gap > 0, 'above', 'below') || ' that of bf16')}. The
most is {most}{iif(slower, '; ' || counted(slower, 'step') || ' did not gain', '')}. MFU counts each operation at its
own peak; next to it, all count at the 16-bit peak.
Loss: how much higher it is than that of bf16 after the same tokens, on
average of the runs{iif(borrowed, ' of ' || code('h200-x1-losses') || ' (small, 1000 steps), since none are here',
' here')}.
@from (SELECT *, count(*) OVER () AS steps, n(max(speedup_bf16) OVER ()) AS most,
    sum(fp8_pays = 'no') OVER () AS slower FROM float8_steps
    WHERE status = 'ok' AND speedup_bf16 > 0 AND device = 'cuda' ORDER BY speedup_bf16 LIMIT 1)

@table
SELECT status, size, seq AS "S:", precision, step_ms AS "step ms:", speedup_bf16 AS "times as fast:",
    fp8_pays AS "pays", gap AS "loss %?:", fp8_share_pct AS "in float8 %:", mfu_causal_pct AS "MFU %?:",
    mfu_bf16_pct AS "at bf16's peak?:",
    peak_bytes / gib() AS "peak GiB:"
FROM float8_steps
WHERE speedup_bf16 > 0 ORDER BY size_place(size), seq, id

-- ---- one dimension at a time ----
@figures scaling_

@each SELECT column1 AS axis, column2 AS called FROM (VALUES
    ('seq', 'Context'),
    ('layers', 'Depth'),
    ('d_model', 'Width'),
    ('batch', 'Batch'),
    ('heads_kv', 'Key and value heads'))

@view axis_rows
SELECT w.*, CASE :axis WHEN 'd_model' THEN d_model WHEN 'heads_kv' THEN heads_kv
    ELSE json_extract(options, '$.' || :axis) END AS value,
    json_remove(options, '$.' || :axis, '$.recompute', iif(:axis = 'd_model', '$.heads', '$.' || :axis))
    || variant AS rest_of
FROM warm w
WHERE value <> 0 AND mode = 'train-step'

@view sweep
SELECT *, count(*) OVER () AS n_ FROM axis_rows
WHERE rest_of = (SELECT rest_of FROM axis_rows GROUP BY 1 ORDER BY count(DISTINCT value) DESC, count(*) DESC, min(id)
    LIMIT 1) AND (SELECT count(DISTINCT value) FROM axis_rows GROUP BY rest_of ORDER BY count(DISTINCT value) DESC
    LIMIT 1) > 2

### {:called}: {shape(bench, json_remove(options, '$.' || :axis, '$.recompute'))}
@from sweep HAVING count(*)

@table
SELECT status, value AS "value:", iif(recompute <> 'none', recompute, '') AS "recompute?",
    params / 1e6 AS "parameters, millions:", step_ms AS "step ms:", tokens_per_s AS "tokens/s:", tflops AS "TFLOP/s:",
    mfu_causal_pct AS "MFU %?:", hfu_pct AS "HFU %?:", peak_bytes / gib() AS "peak GiB:"
FROM sweep ORDER BY value, id

@end

-- ---- warm-up, energy and the rest ----
@view warmups
SELECT * FROM (SELECT *, json_remove(options, '$.warmup') || variant AS same,
    count(*) OVER (PARTITION BY json_remove(options, '$.warmup') || variant) AS n_ FROM bench_transformer) WHERE n_ > 1

@view ratios
SELECT w.warmup, w.host_step_mean_ms / m.host_step_mean_ms AS ratio FROM warmups w JOIN warmups m ON m.same = w.same
    AND m.warmup = (SELECT max(warmup) FROM warmups x WHERE x.same = w.same) WHERE w.warmup < m.warmup

Warm-up: the measured steps after different numbers of warm-up steps. cold is a process of its own, whose first step
neither a check nor tuning precedes. By the host's clock and against the most warm-up, the mean step takes
{group_concat(span(low, high) || ' times as long after ' || counted(warmup, 'step'), ', ')}.
@from (SELECT warmup, min(ratio) AS low, max(ratio) AS high FROM ratios GROUP BY warmup ORDER BY warmup) HAVING count(*)

@table
SELECT status, case_name(bench, variant, options) AS "case", warmup AS "warm-up:",
    pm(step_mean_ms, step_std_ms) AS "step ms:", pm(host_step_mean_ms, host_step_std_ms) AS "by the host ms:",
    host_step_ms AS "median:", first_step_ms AS "first step ms:"
FROM warmups ORDER BY id

@view steady
SELECT id AS place, case_name(bench, variant, options) AS name, step_ms AS burst,
    iif(long, sustained_step_ms, NULL) AS sustained,
    sustained_step_sm_mhz AS mhz, sustained_step_power_w AS watts,
    iif(long, NULL, step_j) AS joules, tokens_per_j AS per_j
FROM (SELECT *, 1 AS long FROM steady_bench_transformer UNION ALL SELECT *, 0 FROM bench_transformer)
WHERE status = 'ok'

@use steady tokens

Other cases
@from warm WHERE id NOT IN (SELECT id FROM steps) LIMIT 1

@table
SELECT status, case_name(bench, variant, options) AS "case", fwd_ms AS "forward ms:", bwd_ms AS "backward ms:",
    opt_ms AS "AdamW ms:", step_ms AS "step ms:", tokens_per_s AS "tokens/s:", mfu_causal_pct AS "MFU %?:",
    hfu_pct AS "HFU %?:", peak_bytes / gib() AS "peak GiB:"
FROM warm
WHERE id NOT IN (SELECT id FROM steps) ORDER BY id
