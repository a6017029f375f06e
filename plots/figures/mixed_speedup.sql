-- SPDX-License-Identifier: MIT
@each SELECT DISTINCT seq FROM bench_mixed_precision WHERE variant = 'timing' AND status = 'ok' ORDER BY seq

@slice rows FROM bench_mixed_precision ALONG size, precision WHERE variant = 'timing' AND status = 'ok' AND seq = :seq

@if (SELECT count(DISTINCT size) FROM rows) > 2

@draw mixed_speedup_{:seq}: Speedup over fp32, context {:seq}, batch {max(batch)}
list = SELECT DISTINCT size FROM drawn ORDER BY size_place(size)
names = SELECT column1 FROM (VALUES ('tf32'), ('bf16'), ('bf16-pure'), ('fp16'))
    WHERE column1 IN (SELECT precision FROM drawn)
SELECT *, dense_rank() OVER (ORDER BY size_place(size)) AS x, column1 AS panel,
    CASE column1 WHEN 1 THEN speedup_fwd WHEN 2 THEN speedup_bwd ELSE speedup_step END AS y,
    dense_rank() OVER (ORDER BY instr(' tf32 bf16 bf16-pure fp16 ', ' ' || precision || ' ')) AS style
    FROM rows, (VALUES (1), (2), (3)) WHERE precision IN ('tf32', 'bf16', 'bf16-pure', 'fp16') ORDER BY x, id

@end

@end
