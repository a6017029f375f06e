-- SPDX-License-Identifier: MIT
-- What a save does when: the model with the largest state; each strategy and way once, the newest row.
@view rows
SELECT *, strategy || ' x' || ranks || ' ' || way AS label FROM bench_checkpoint
WHERE status = 'ok' AND durable_ms > 0 AND id IN (SELECT max(id) FROM bench_checkpoint WHERE status = 'ok'
    AND durable_ms > 0 GROUP BY size, strategy, ranks, way, precision, moments)

@view largest
SELECT *, row_number() OVER (ORDER BY strategy, ranks, instr('sync async lazy device', way)) AS place FROM rows
WHERE state_bytes = (SELECT max(state_bytes) FROM rows)

@if EXISTS (SELECT 1 FROM largest)

@draw checkpoint_timeline: A save of {max(size)} in time ({printf('%.3g', max(state_bytes) / 1e9)} GB)
SELECT * FROM largest ORDER BY place

@end
