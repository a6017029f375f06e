-- SPDX-License-Identifier: MIT
-- A figure for each pair of dtypes: contexts and strategies that ran on several numbers of ranks.
@use ddp_drawn

@each SELECT DISTINCT precision, gradients FROM ddp_drawn

@slice rows FROM ddp_drawn ALONG ranks, seq, bucket_mb, update, update_blocks, max_ctas, overlap, fusion, grad_dtype
    WHERE stands AND precision = :precision AND gradients = :gradients

@view shown
SELECT *, dense_rank() OVER (ORDER BY instr('naive flat overlap bucketed zero1', variant)) AS line FROM rows
    WHERE variant IN ('naive', 'flat', 'overlap', 'bucketed', 'zero1')
    AND seq IN (SELECT seq FROM rows GROUP BY 1 HAVING count(DISTINCT ranks) > 1)
    AND variant IN (SELECT variant FROM rows GROUP BY 1 HAVING count(DISTINCT ranks) > 1)

@if EXISTS (SELECT 1 FROM rows GROUP BY seq HAVING count(DISTINCT ranks) > 1)
    AND EXISTS (SELECT 1 FROM rows GROUP BY variant HAVING count(DISTINCT ranks) > 1)

@draw ddp_scaling_{:precision}_{:gradients}: Tokens a second over ranks, {:precision}, gradients {:gradients} ({max(size)}, batch {max(batch)})
list = SELECT DISTINCT ranks FROM drawn ORDER BY ranks
panels = SELECT char(34) || 'S ' || seq || char(34) FROM drawn GROUP BY seq ORDER BY seq
names = SELECT variant FROM drawn WHERE style < 40 GROUP BY variant ORDER BY min(style)
SELECT *, ranks AS x, dense_rank() OVER (ORDER BY seq) AS panel,
    iif(column1 = 1, tokens_per_s, tokens_per_s * step_ms / compute_ms) AS y, iif(column1 = 1, line, 41) AS style
    FROM shown, (VALUES (1), (2)) WHERE column1 = 1 OR line = 1 ORDER BY ranks

@end

@end
