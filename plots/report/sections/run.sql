-- SPDX-License-Identifier: MIT
@section 145 Does it train?
@of bench_run

@figures run_

@view runs
SELECT *, size || ', S ' || seq || ', ' || precision || iif(ranks > 1, ', ' || strategy || ' on ' || ranks, '')
    || iif(data <> 'made', ', ' || data, '') || iif(overfit, ', one batch', '') AS what
FROM bench_run

A run of thousands of steps on tokens of known entropy: {max(entropy_pair)} nats for a model that knows the two tokens
before, [[{max(entropy_token)} if it knows one, {max(entropy_none)} if it knows none]]. A loss that stays above the
second has not learned to look at two tokens, and one below the floor, the mean loss of a model that knows the source,
would see what it predicts. Excess is the loss less that of such a model on the same tokens.
@from runs WHERE status = 'ok' AND entropy_pair IS NOT NULL HAVING count(*) > 0

@table
SELECT status, what AS "run", variant AS rung, steps AS "steps:",
    iif(variant IN ('bare', 'data'), 'constant', schedule) AS rate, global_batch AS "batch:",
    loss_first AS "first loss:", loss_last AS "last loss:", floor_loss AS "floor?:", above_floor_pct AS "above %?:",
    excess AS "excess?:", outliers AS "outliers:", updates AS "updates:"
FROM runs
WHERE status <> 'skip' ORDER BY id

### What float8 costs in loss

@view gaps
SELECT precision, steps, size, seq, global_batch AS batch, count(*) AS seeds, avg(loss_gap_pct) AS gap,
    avg(speedup_bf16) AS speed, avg(mfu_causal_pct) AS mfu, avg(mfu_bf16_pct) AS mfu_bf16,
    min(loss_gap_pct) AS low, max(loss_gap_pct) AS high,
    (SELECT 100 * (max(b.loss_last) / min(b.loss_last) - 1) FROM runs b WHERE b.status = 'ok' AND b.precision = 'bf16'
    AND b.size = r.size AND b.seq = r.seq AND b.steps = r.steps AND b.global_batch = r.global_batch) AS spread
FROM runs r WHERE status = 'ok' AND precision LIKE 'fp8-%' AND loss_gap_pct IS NOT NULL
GROUP BY precision, steps, size, seq, global_batch

{precision} gains least: on {size} at S {seq}, its step is {n(speed)} times as fast as in bf16, and after {steps} steps
its loss is {n(abs(gap))} % {iif(gap > 0, 'above', 'below')} that of bf16. The most is {n(most)}. In the table: how much
higher the last loss is than that of the same run in bf16, and by how much runs in bf16 of other seeds differ among
themselves.
@from (SELECT *, max(speed) OVER () AS most FROM gaps ORDER BY speed LIMIT 1)

@table
SELECT size, seq AS "S:", batch AS "batch:", steps AS "steps:", precision, speed AS "times as fast?:",
    mfu AS "MFU %?:", mfu_bf16 AS "at bf16's peak?:", seeds AS "seeds:", gap AS "gap %:",
    low AS "least:", high AS "most:", spread AS "seeds of bf16 %?:"
FROM gaps ORDER BY size_place(size), seq, batch, steps, precision

### Compared with PyTorch

The same run in PyTorch: initial values, tokens, order, rates and clipping are those that `bench_run --dump` wrote. What
the losses may differ by: in fp32 each record's, relative; else the mean of the last quarter, in nats. Between two runs:
how much PyTorch's own losses differ, with nothing changed. A step is one CUDA graph there as here, or launched op by op
(eager), and `.item()` reads each loss.
@from peer_run LIMIT 1

@table
SELECT size, seq AS "S:", vocab AS "V?:", d_ff AS "d_ff?:", precision, steps AS "steps:",
    n4(loss_last_ours) AS "last loss?:", n4(loss_last) AS "PyTorch's?:", diff_rel AS "differ?:", allow_rel AS "may?:",
    spread_rel AS "between two runs?:", diff_last AS "last quarter, nats?:",
    allow_last AS "may, nats?:", n4(step_ms) AS "its step ms?:", n4(item_ms) AS "with .item()?:",
    n4(eager_ms) AS "eager?:", n4(eager_item_ms) AS "eager, .item()?:", note AS "note?"
FROM peer_run ORDER BY rowid

### What a run costs besides its steps

Each rung adds one thing to the one before. Cost is the step with it less the same step without it, in alternating
blocks [95 % interval]; wall is a step of the whole run, and rest the share of it that the blocks do not explain.
The bare step of the rungs from `clip` on clips. `wait` reads each loss at once, as a loop with `.item()` does.
@from (SELECT 1 FROM runs WHERE bare_ms > 0 LIMIT 1)

@table
SELECT what AS "run", variant AS rung, n4(bare_ms) AS "bare ms:", range4(cost_ms, cost_lo_ms, cost_hi_ms)
    AS "cost ms [95 %]:", cost_pct AS "cost %:", data_wait_pct AS "data wait %:", log_ms AS "log, host ms:",
    n4(wall_ms) AS "wall ms:", rest_pct AS "rest %:", tokens_per_s AS "tokens/s:", mfu_causal_pct AS "MFU %?:"
FROM runs
WHERE status = 'ok' AND bare_ms > 0 ORDER BY id

### Saves of a run

A run saves a checkpoint at intervals. A save is what a checkpoint adds to the steps of a block of the ladder that
begins with one; its share is relative to the steps between two saves. Durable is the time from its start until it is
complete and synced. Behind is the step of the checkpoint from which the run continued.
@from (SELECT 1 FROM runs WHERE status = 'ok' AND saves > 0 LIMIT 1)

@table
SELECT what AS "run", way, save_every AS "every:", saves AS "saves:", state_bytes / 1e9 AS "GB:",
    n4(save_ms) AS "save ms?:", save_ms / step_ms AS "steps?:", 100 * save_ms / save_every / step_ms AS "share %?:",
    n4(durable_ms) AS "durable ms:", n4(save_wait_ms) AS "waited ms:", first_step AS "behind:"
FROM runs
WHERE status = 'ok' AND saves > 0 ORDER BY id

### Jitter
@from (SELECT 1 FROM runs WHERE status = 'ok' LIMIT 1)

@table
SELECT what AS "run", variant AS rung, n_steps AS "steps:", n4(step_ms) AS "median ms:", n4(step_p95_ms) AS "95 %:",
    n4(step_p99_ms) AS "99 %:", n4(step_max_ms) AS "longest:", slowest_step AS "which:", jitter AS "99 % / median:",
    long_steps AS "over 1.5 medians:", drift_pct AS "drift %:"
FROM runs
WHERE status = 'ok' ORDER BY id

### Goals of a run
@from (SELECT 1 FROM runs WHERE status = 'ok' LIMIT 1)

@view asked
SELECT 1 AS place, 'data, schedule and log, % of a step of xl' AS what, 1.0 AS bound, cost_pct AS value FROM runs
    WHERE status = 'ok' AND variant = 'log' AND size = 'xl'
UNION ALL SELECT 2, 'data, schedule and log, % of a step of small', 3, cost_pct
    FROM runs WHERE status = 'ok' AND variant = 'log' AND size = 'small'
UNION ALL SELECT 3, 'what the parts do not explain of the wall time, %', 1, rest_pct
    FROM runs WHERE status = 'ok' AND variant NOT IN ('save', 'wait')
UNION ALL SELECT 4, 'waiting for data, %', 0.1, data_wait_pct FROM runs WHERE status = 'ok' AND variant <> 'bare'
UNION ALL SELECT 5, '99 % of steps over the median, 1000 steps or more', 1.05, jitter FROM runs
    WHERE status = 'ok' AND n_steps > 900 AND variant NOT IN ('save', 'wait')
UNION ALL SELECT 6, 'loss above its floor after 5000 steps, %', 2, above_floor_pct
    FROM runs WHERE status = 'ok' AND steps >= 5000
UNION ALL SELECT 7, 'PyTorch''s loss in fp32, relative', allow_rel, diff_rel FROM peer_run WHERE allow_rel > 0
UNION ALL SELECT 8, 'PyTorch''s last losses in ' || precision || ', nats', allow_last, diff_last
    FROM peer_run WHERE allow_last > 0

@table
SELECT what AS "asked", max(bound) AS "at most:", median(value) AS "median:", min(value) AS "least:",
    max(value) AS "most:", sum(value <= bound) || ' of ' || count(*) AS "rows that keep it"
FROM asked WHERE value IS NOT NULL GROUP BY place, what ORDER BY place, what
