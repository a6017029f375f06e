-- SPDX-License-Identifier: MIT
-- Where the GPU's peak is not known, the share of its measured GEMM ceiling instead.
@use transformer_warm

@slice rows FROM warm ALONG size, seq, precision WHERE status = 'ok' AND variant = (SELECT variant FROM level)

@view shares
SELECT *, seq AS x, iif((SELECT count(mfu_causal_pct) FROM rows), mfu_causal_pct, ceiling_pct) AS y,
    min(id) OVER (PARTITION BY precision) AS first
    FROM rows WHERE precision IN (SELECT precision FROM rows GROUP BY 1 HAVING count(DISTINCT seq) > 2)

@if EXISTS (SELECT 1 FROM shares WHERE y > 0)

@draw transformer_mfu: Share of {iif(max(mfu_causal_pct), 'the GPU''s peak', 'the measured GEMM ceiling')} in a step ({shape(bench, json_remove(options, '$.precision', '$.size', '$.seq'))})
seqs = SELECT DISTINCT seq FROM drawn ORDER BY seq
names = SELECT DISTINCT size FROM drawn ORDER BY size_place(size)
panels = SELECT precision FROM drawn GROUP BY panel ORDER BY panel
ceiling := SELECT count(mfu_causal_pct) = 0 FROM drawn
SELECT *, dense_rank() OVER (ORDER BY first) AS panel, dense_rank() OVER (ORDER BY size_place(size)) AS style
    FROM shares WHERE y > 0 ORDER BY seq, id
