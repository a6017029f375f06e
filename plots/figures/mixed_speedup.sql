-- SPDX-License-Identifier: MIT
-- Points are joined in the order of sizes.
@each SELECT DISTINCT seq FROM bench_mixed_precision WHERE variant = 'timing' AND status = 'ok' ORDER BY seq

@slice rows FROM bench_mixed_precision ALONG size, precision WHERE variant = 'timing' AND status = 'ok' AND seq = :seq

@if (SELECT count(DISTINCT size) FROM rows) > 2

@draw mixed_speedup_{:seq}: Speed-up over fp32, context {:seq}, batch {max(batch)}
sizes = SELECT DISTINCT size FROM drawn ORDER BY size_place(size)
precisions = SELECT column1 FROM (VALUES ('tf32'), ('bf16'), ('bf16-pure'), ('fp16'))
    WHERE column1 IN (SELECT precision FROM drawn)
SELECT * FROM rows ORDER BY size_place(size), id

@end

@end
