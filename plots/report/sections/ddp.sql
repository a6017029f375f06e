-- SPDX-License-Identifier: MIT
@section 110 Data parallelism
@of bench_ddp_naive bench_ddp_flat bench_ddp_overlap bench_ddp_bucketed bench_zero1

@use ddp_rows

Every rank has the model and its own batch, and gradients are summed over the ranks. Exposed is what communication
costs: the step minus the same step without communication, the two alternating in one run, with a bootstrap interval.
Alone is the time of a step's collectives with nothing else running, and hidden is 1 - exposed / alone. Overlapped is
the share of the communication in a recorded step during which compute ran. Tail is how long compute waits after the
backward, and contention the rest of exposed. An exposed time below 0 is noise. Forward, backward, updates and tail
come from another run. Calls are collectives for gradients.

@figures ddp_steps_

@each SELECT grp, title, min(place) AS first FROM ddp GROUP BY grp ORDER BY first

### {:title}

@table
SELECT status, label AS strategy, n4(step_ms) || ' (' || n4(step_mean_ms) || ' ± ' || n(step_std_ms)
    || ')' AS "step ms (mean ± std):", range4(exposed_ms, exposed_lo_ms, exposed_hi_ms) AS "exposed ms [95 %]:",
    n4(comm_alone_ms) AS "alone ms:", hidden_pct AS "hidden %:", overlapped_pct AS "overlapped %?:",
    n4(tail_ms) AS "tail ms:", n4(contention_ms) AS "contention ms:", n4(fwd_ms) AS "forward ms:",
    n4(bwd_ms) AS "backward ms:", n4(opt_ms) AS "updates ms:", tokens_per_s AS "tokens/s:", mfu_causal_pct AS "MFU %?:",
    buckets AS "calls:"
FROM ddp
WHERE grp = :grp ORDER BY place

-- Neighbours of the order naive, flat, overlap, bucketed: each should expose no more than the one before.
@view chain
SELECT *, row_number() OVER (ORDER BY place) AS link FROM best WHERE grp = :grp
    AND variant IN ('naive', 'flat', 'overlap', 'bucketed')

@view links
SELECT a.label AS a, b.label AS b, b.exposed_ms - a.exposed_ms AS more, b.exposed_lo_ms > a.exposed_hi_ms
    OR a.exposed_lo_ms > b.exposed_hi_ms AS apart, b.link FROM chain a JOIN chain b ON b.link = a.link + 1

-- Steps of one run depend on each other: intervals that separate are no verdict on two strategies.
Expected in exposed time: {(SELECT group_concat(variant, ' ≥ ') FROM (SELECT variant FROM chain ORDER BY link))}.
In this run: {group_concat(b || ' ' || n4(abs(more)) || ' ms ' || iif(more > 0, 'more', 'less') || ' than ' || a
|| ' (intervals ' || iif(apart, 'separate', 'meet') || ')', '; ')}. One run gives no verdict.
@from (SELECT * FROM links ORDER BY link) HAVING count(*)

@view versus
SELECT column1 AS variant, column2 AS base, column3 AS what FROM (VALUES
    ('naive-grouped', 'naive', 'One launch for all calls'),
    ('flat-copy', 'flat', 'Copying gradients together and back'))

+ {v.what} ({code(v.variant)}) makes a step {n4(abs(b.step_ms - a.step_ms))} ms
{iif(b.step_ms > a.step_ms, 'longer', 'shorter')} than {code(v.base)} does, in this run.
@from versus v JOIN best a ON a.grp = :grp AND a.variant = v.base JOIN best b ON b.grp = :grp AND b.variant = v.variant
    AND b.run_of = a.run_of

@end

-- ---- buckets ----
@view sweeps
SELECT *, count(*) OVER (PARTITION BY grp, how) AS sizes FROM ddp WHERE variant = 'bucketed' AND status = 'ok'
    AND exposed_ms IS NOT NULL

@figures ddp_buckets_

@each SELECT grp, how, title || iif(how = '', '', ' (' || how || ')') AS title, min(place) AS first FROM sweeps
    WHERE sizes > 1 GROUP BY grp, how ORDER BY first

### Buckets: {:title}

@view here
SELECT *, row_number() OVER (ORDER BY exposed_ms) AS nth FROM sweeps WHERE grp = :grp AND how = :how

@table
SELECT bucket_mb AS "MB:", buckets AS "calls:", bucket_bytes / mib() AS "largest MiB:", n4(step_ms) AS "step ms:",
    range4(exposed_ms, exposed_lo_ms, exposed_hi_ms) AS "exposed ms [95 %]:", n4(tail_ms) AS "tail ms:",
    n4(contention_ms) AS "contention ms:", n4(predicted_ms) AS "handout's model ms:",
    n4(predicted_contention_ms) AS "with contention ms:", n4(predicted_exposed_ms) AS "predicted exposed ms:",
    err_exposed_pct AS "off by %:"
FROM here ORDER BY bucket_mb

All-reduces of this run take o + bytes / w with o {o_us} us and w {w_gb_s} GB/s (off by up to {fit_residual_pct} %), so
that the handout's best bucket, sqrt(s o w), is {predicted_best_mb} MB.
@from here WHERE predicted_best_mb IS NOT NULL LIMIT 1

+ Measured best: {printf('%.6g', bucket_mb)} MB with {range4(exposed_ms, exposed_lo_ms, exposed_hi_ms)} ms exposed; its
interval meets that of {counted((SELECT count(*) FROM here o WHERE o.nth > 1 AND o.exposed_lo_ms <= here.exposed_hi_ms),
'other size')}.
@from here WHERE nth = 1

@end
