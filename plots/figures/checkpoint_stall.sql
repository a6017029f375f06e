-- SPDX-License-Identifier: MIT
-- The model with the largest state, and of its steps the one with most rows; each strategy and way once, the
-- newest row.
@view rows
SELECT *, strategy || ' x' || ranks || ' ' || way AS label, size || ', batch ' || batch || ', S ' || seq AS step
FROM bench_checkpoint
WHERE status = 'ok' AND stall_ms IS NOT NULL AND id IN (SELECT max(id) FROM bench_checkpoint WHERE status = 'ok'
    AND stall_ms IS NOT NULL GROUP BY size, seq, batch, strategy, ranks, way, precision, moments)

@view largest
SELECT * FROM rows
WHERE step = (SELECT step FROM rows WHERE state_bytes = (SELECT max(state_bytes) FROM rows)
    GROUP BY step ORDER BY count(*) DESC, max(id) DESC LIMIT 1)

@if EXISTS (SELECT 1 FROM largest)

@draw checkpoint_stall: What a save of {max(size)} costs ({printf('%.3g', max(state_bytes) / 1e9)} GB)
SELECT * FROM largest ORDER BY strategy, ranks, instr('sync async lazy device', way)
