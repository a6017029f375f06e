-- SPDX-License-Identifier: MIT
-- Training steps of bench_transformer in float8, with the loss that their recipe costs: `gap`, the mean of the runs
-- here or, where there are none (`borrowed`), of those of another folder; see tables.txt.

@view float8_steps
SELECT *, coalesce(own, lent) AS gap, own IS NULL AND lent IS NOT NULL AS borrowed
FROM (SELECT *, (SELECT avg(loss_gap_pct) FROM bench_run r WHERE r.status = 'ok' AND r.precision = b.precision) AS own,
    (SELECT avg(loss_gap_pct) FROM losses l WHERE l.precision = b.precision) AS lent
    FROM bench_transformer b WHERE precision LIKE 'fp8-%' AND mode = 'train-step' AND coalesce(cold, 0) = 0)
