-- SPDX-License-Identifier: MIT
-- What a save does when: the rows of checkpoint_stall.
@view rows
SELECT *, strategy || ' x' || ranks || ' ' || way AS label, size || ', batch ' || batch || ', S ' || seq AS step
FROM bench_checkpoint
WHERE status = 'ok' AND durable_ms > 0 AND id IN (SELECT max(id) FROM bench_checkpoint WHERE status = 'ok'
    AND durable_ms > 0 GROUP BY size, seq, batch, strategy, ranks, way, precision, moments)

@view largest
SELECT *, row_number() OVER (ORDER BY strategy, ranks, instr('sync async lazy device', way)) AS place FROM rows
WHERE step = (SELECT step FROM rows WHERE state_bytes = (SELECT max(state_bytes) FROM rows)
    GROUP BY step ORDER BY count(*) DESC, max(id) DESC LIMIT 1)

@if EXISTS (SELECT 1 FROM largest)

@draw checkpoint_timeline: A save of {max(size)} in time ({printf('%.3g', max(state_bytes) / 1e9)} GB)
SELECT * FROM largest ORDER BY place
