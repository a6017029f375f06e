-- SPDX-License-Identifier: MIT
-- @use attention_figure NAME UPPER LOWER: bench_attention against sequence length, a figure for each dtype and a
-- column of panels for each head dimension: two numbers, one colour per variant, every second one dashed.
@each SELECT dtype, min(id) AS place FROM bench_attention WHERE status = 'ok' GROUP BY dtype ORDER BY place

@slice rows FROM bench_attention ALONG seq, head_dim WHERE status = 'ok' AND dtype = :dtype

@if (SELECT count(DISTINCT seq) FROM rows) > 2

@view numbered
SELECT *, dense_rank() OVER (ORDER BY head_dim) AS dim,
    dense_rank() OVER (ORDER BY instr('unfused fused flash flash_portable', variant)) AS place FROM rows

@draw attention_$1_{:dtype}: Attention $1, {:dtype} ({shape(bench, json_remove(options, '$.dtype', '$.seq', '$.head_dim'))}, 1 head)
seqs = SELECT DISTINCT seq FROM drawn ORDER BY seq
dims = SELECT DISTINCT head_dim FROM drawn ORDER BY head_dim
names = SELECT variant FROM drawn GROUP BY variant ORDER BY min(place)
SELECT *, seq AS x, dim + iif(column1 = 1, 0, (SELECT max(dim) FROM numbered)) AS panel, iif(column1 = 1, $2, $3) AS y,
    iif(place % 2, place, 20 + place) AS style FROM numbered, (VALUES (1), (2)) ORDER BY id

@end

@end
