-- SPDX-License-Identifier: MIT
-- The wall time of a step on each rung, of the run that has most of them.
@view newest
SELECT *, options AS same FROM bench_run WHERE status = 'ok' AND bare_ms > 0

@view most
SELECT same, run_of FROM newest GROUP BY same, run_of ORDER BY count(DISTINCT variant) DESC, max(id) DESC LIMIT 1

@view rows
SELECT *, max(fed_ms - bare_ms, 0) AS added_ms, max(wall_ms - max(fed_ms, bare_ms), 0) AS left_ms,
    row_number() OVER (ORDER BY id) AS place
FROM newest WHERE (same, run_of) IN (SELECT same, run_of FROM most)
    AND id IN (SELECT max(id) FROM newest GROUP BY same, run_of, variant)

@if (SELECT count(*) FROM rows) > 1

@draw run_ladder: Wall time of a step, rung by rung ({max(size)}, S {max(seq)}, {max(precision)}, {max(strategy)} on {max(ranks)})
SELECT * FROM rows ORDER BY place
