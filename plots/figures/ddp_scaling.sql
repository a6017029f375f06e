-- SPDX-License-Identifier: MIT
-- A figure for each pair of dtypes: contexts and strategies that ran on several numbers of ranks.
@use ddp_drawn

@each SELECT DISTINCT precision, gradients FROM ddp_drawn

@slice rows FROM ddp_drawn ALONG ranks, seq, bucket_mb, update, update_blocks, max_ctas, overlap, fusion, grad_dtype
    WHERE stands AND precision = :precision AND gradients = :gradients

@if EXISTS (SELECT 1 FROM rows GROUP BY seq HAVING count(DISTINCT ranks) > 1)
    AND EXISTS (SELECT 1 FROM rows GROUP BY variant HAVING count(DISTINCT ranks) > 1)

@draw ddp_scaling_{:precision}_{:gradients}: Tokens a second over ranks, {:precision}, gradients {:gradients} ({max(size)}, batch {max(batch)})
ranks = SELECT DISTINCT ranks FROM drawn ORDER BY ranks
seqs_shown = SELECT seq FROM drawn GROUP BY seq HAVING count(DISTINCT ranks) > 1 ORDER BY seq
variants = SELECT column1 FROM (VALUES ('naive'), ('flat'), ('overlap'), ('bucketed'), ('zero1'))
    WHERE column1 IN (SELECT variant FROM drawn GROUP BY variant HAVING count(DISTINCT ranks) > 1)
SELECT * FROM rows ORDER BY seq, variant, ranks

@end

@end
