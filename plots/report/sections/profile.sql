-- SPDX-License-Identifier: MIT
@section 160 Profiles: where the time of a step goes
@of profile_totals

From `--profile`. A kernel's ideal is the longer of its FLOPs at the rate of the best product and its bytes at that of
the best copy; what it takes beyond that is lost.

@each SELECT bench, variant, "case", measurement, run_id, max(id) AS place
    FROM (SELECT * FROM profile_totals WHERE rank = 0 ORDER BY id) GROUP BY bench, "case", measurement ORDER BY place

@view this
SELECT * FROM profile_totals WHERE bench = :bench AND "case" = :case AND measurement = :measurement AND run_id = :run_id

### {:bench}, {:variant}, {:measurement}: {event_ms} ms
@from this WHERE rank = 0

{code(:case)}. By events it takes {event_ms} ms, by the host's clock {host_ms} ms; it was timed at {timed_ms} ms. In the
recorded step, of {window_ms} ms, something ran in {busy_ms} ms, and nothing in {100 * (1 - busy_ms / window_ms)} % of
the time. Recording costs {profiler_overhead_pct} %.[[{only(attributed_pct < 99.5)} Only {attributed_pct} % of the
kernels' time is attributed to ranges.]]
@from this WHERE rank = 0

@view kernels
SELECT k.* FROM profile_kernels k WHERE bench = :bench AND "case" = :case AND measurement = :measurement
    AND run_id = :run_id AND rank = 0 ORDER BY id LIMIT 8

+ Most is to be gained from {op} in {coalesce(range, 'no range')}: it reaches {attained_pct} % of what its FLOPs and
bytes allow, which loses {lost_ms} ms.
@from kernels WHERE lost_ms > 0 ORDER BY id LIMIT 1

@table
SELECT coalesce(range, '') AS range, op, name AS kernel, calls AS "calls:", total_ms AS "ms:", share_pct AS "share %:",
    bound, attained_pct AS "attained %:", lost_ms AS "lost ms:" FROM kernels

-- A product's bound is the rate that one of as many FLOPs reaches alone, or of half as many, where the roofline has
-- one: a range of the backward has two products, for its input and its weight, and twice the rows keep the rate.
@view shapes
SELECT dtype, tflops, 2e-12 * CAST(mnk AS INTEGER) * CAST(rest AS INTEGER) * CAST(substr(rest, instr(rest, 'x') + 1) AS
    INTEGER) AS each FROM (SELECT *, substr(mnk, instr(mnk, 'x') + 1) AS rest FROM bench_roofline
    WHERE variant = 'gemm_best' AND status = 'ok')

@view parts
SELECT *, coalesce(iif(op LIKE 'matmul%', 1e3 * tflop / (SELECT max(tflops) FROM shapes s WHERE s.dtype = p.dtype
    AND (abs(tflop / calls / each - 1) < 0.01 OR abs(tflop / calls / each - 2) < 0.02)), NULL), ideal) AS bound
FROM (SELECT range, op, lane, max(dtype) AS dtype, max(calls) AS calls, sum(tflop) AS tflop, sum(total_ms) AS ms,
    sum(total_ms - lost_ms) AS ideal, min(id) AS place FROM profile_kernels WHERE bench = :bench AND "case" = :case
    AND measurement = :measurement AND run_id = :run_id AND rank = 0 GROUP BY range, op, lane) p

@view step
SELECT CASE WHEN lane <> 'compute' THEN lane WHEN op LIKE 'matmul%' THEN 'products, ' || iif(range LIKE 'backward%',
    'backward', 'forward') WHEN op LIKE 'attention%' THEN op WHEN op LIKE 'norm%' OR op = 'rope' THEN 'norms and RoPE'
    WHEN op IN ('AdamW', 'optimizer state') THEN 'AdamW' ELSE 'loss, embedding and the rest' END AS part,
    sum(ms) AS ms, sum(bound) AS bound FROM parts GROUP BY part

What a step is made of. The bound of a product is the rate that one of as many FLOPs, or half as many, reaches by
itself, or the best one; the bound of a pass is the rate of a copy.
[[{only((SELECT kernel_ms > 1.01 * busy_ms FROM this WHERE rank = 0))}
Kernels ran at the same time, so the parts add up to more than the step.]]
@from (SELECT 1 FROM step LIMIT 1 OFFSET 3)

@table
SELECT part, ms AS "ms:", 100 * ms / window_ms AS "share %:", bound AS "bound ms?:", ms - bound AS "above it ms?:"
FROM (SELECT *, 1 AS at FROM step UNION ALL SELECT 'nothing ran', window_ms - busy_ms, 0, 2 FROM this WHERE rank = 0
    UNION ALL SELECT 'step', window_ms, (SELECT sum(bound) FROM step), 3 FROM this WHERE rank = 0),
    (SELECT window_ms FROM this WHERE rank = 0)
WHERE (SELECT count(*) FROM step) > 3 ORDER BY at, ms DESC

@table
SELECT mode AS "share of matrix products in", gemm_pct AS "products %:", attention_pct AS "attention in one kernel %:",
    other_pct AS "other %:", idle_pct AS "idle %:"
FROM profile_products
WHERE bench = :bench AND "case" = :case AND measurement = :measurement AND run_id = :run_id AND rank = 0 ORDER BY id

@table
SELECT pass AS "softmax beside the products", scores_ms AS "scores ms:", mask_ms AS "mask ms:",
    softmax_ms AS "softmax ms:", value_ms AS "value ms:", time_ratio AS "softmax / products: time:",
    flop_ratio AS "FLOPs:", byte_ratio AS "bytes:"
FROM profile_softmax
WHERE bench = :bench AND "case" = :case AND measurement = :measurement AND run_id = :run_id AND rank = 0
    AND form = 'parts' ORDER BY id

@table
SELECT class AS "why nothing ran", host_in AS "the host was in?", count AS "gaps:", total_ms AS "ms:",
    longest_us AS "longest us:", after, before
FROM profile_idle
WHERE bench = :bench AND "case" = :case AND measurement = :measurement AND run_id = :run_id AND rank = 0 ORDER BY id
    LIMIT 6

@table
SELECT rank AS "rank:", comm_ms AS "communication ms:", exposed_ms AS "of it exposed:",
    overlapped_pct AS "overlapped %:", step_ms AS "step:", twin_ms AS "without:", term_exposed_ms AS "exposed:",
    term_compute_ms AS "slower compute:", term_copy_ms AS "copies:", term_idle_ms AS "idle:", residual_ms AS "residual:"
FROM profile_overlap
WHERE bench = :bench AND "case" = :case AND measurement = :measurement AND run_id = :run_id AND comm_ms > 0 ORDER BY id

@table
SELECT rank AS "rank:", count(*) AS "collectives:", sum(bytes) / mib() AS "MiB:", sum(wait_us) / 1e3 AS "waited ms:",
    sum(transfer_us) / 1e3 AS "moved data ms:", sum(late_rank = rank) AS "came last:"
FROM profile_collectives
WHERE bench = :bench AND "case" = :case AND measurement = :measurement AND run_id = :run_id GROUP BY rank ORDER BY rank

@end
