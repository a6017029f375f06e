-- SPDX-License-Identifier: MIT
@use transformer_warm

@each SELECT precision, min(id) AS place FROM warm WHERE status = 'ok' GROUP BY precision ORDER BY place

@slice rows FROM warm ALONG size, seq WHERE status = 'ok' AND precision = :precision AND variant = (SELECT variant
    FROM level)

@if (SELECT count(DISTINCT seq) FROM rows) > 2

@draw transformer_time_{:precision}: Training step, {:precision} ({shape(bench, json_remove(options, '$.precision', '$.size', '$.seq'))})
seqs = SELECT DISTINCT seq FROM drawn ORDER BY seq
names = SELECT DISTINCT size FROM drawn ORDER BY size_place(size)
SELECT *, seq AS x, column1 AS panel, iif(column1 = 1, step_ms, tokens_per_s) AS y,
    dense_rank() OVER (ORDER BY size_place(size)) AS style FROM rows, (VALUES (1), (2)) ORDER BY seq, id

@end

@end
