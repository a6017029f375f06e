-- SPDX-License-Identifier: MIT
@use transformer_warm

@slice rows FROM warm ALONG size, seq, precision WHERE status = 'ok' AND variant = (SELECT variant FROM level)

@view ratios
SELECT b.*, b.seq AS x, a.step_ms / b.step_ms AS y FROM rows a JOIN rows b USING (size, seq, run_of)
    WHERE a.precision = 'fp32' AND b.precision = 'bf16'

@if (SELECT count(DISTINCT seq) FROM rows) > 2 AND EXISTS (SELECT 1 FROM ratios)

@draw transformer_speedup: bf16 against fp32, training step ({shape(bench, json_remove(options, '$.precision', '$.size', '$.seq'))})
seqs = SELECT DISTINCT seq FROM rows ORDER BY seq
names = SELECT DISTINCT size FROM drawn ORDER BY size_place(size)
SELECT *, 1 AS panel, dense_rank() OVER (ORDER BY size_place(size)) AS style FROM ratios ORDER BY seq, id
