-- SPDX-License-Identifier: MIT
-- @use flash_figure NAME WHAT FORWARD BACKWARD: bench_flash against sequence length, a figure for each dtype and a
-- panel for each pass: one colour per head dimension, unfused dashed.
@use flash_plain

@each SELECT dtype, min(id) AS place FROM plain WHERE status = 'ok' GROUP BY dtype ORDER BY place

@view rows
SELECT * FROM plain WHERE status = 'ok' AND dtype = :dtype

@if (SELECT count(DISTINCT seq) FROM rows) > 2

@draw flash_$1_{:dtype}: Attention $2, {:dtype} ({shape(bench, json_remove(options, '$.dtype', '$.seq', '$.head_dim'))})
seqs = SELECT DISTINCT seq FROM drawn ORDER BY seq
dims = SELECT DISTINCT head_dim FROM drawn ORDER BY head_dim
ceiling := SELECT max(ceiling_tflops) FROM drawn
SELECT *, seq AS x, column1 AS panel, iif(column1 = 1, $3, $4) AS y,
    dense_rank() OVER (ORDER BY head_dim) + 20 * (variant = 'unfused') AS style
    FROM rows, (VALUES (1), (2)) WHERE y IS NOT NULL AND variant IN ('flash', 'unfused') ORDER BY id

@end

@end
