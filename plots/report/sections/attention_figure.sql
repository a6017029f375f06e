-- SPDX-License-Identifier: MIT
-- @use attention_figure latency|memory: bench_attention against sequence length, a figure for each dtype.
@each SELECT dtype, min(id) AS place FROM bench_attention WHERE status = 'ok' GROUP BY dtype ORDER BY place

@slice rows FROM bench_attention ALONG seq, head_dim WHERE status = 'ok' AND dtype = :dtype

@if (SELECT count(DISTINCT seq) FROM rows) > 2

@draw attention_$1_{:dtype}: Attention $1, {:dtype} ({shape(bench, json_remove(options, '$.dtype', '$.seq', '$.head_dim'))}, 1 head)
seqs = SELECT DISTINCT seq FROM drawn ORDER BY seq
dims = SELECT DISTINCT head_dim FROM drawn ORDER BY head_dim
variants = SELECT variant FROM drawn GROUP BY variant ORDER BY min(rowid)
SELECT * FROM rows ORDER BY id

@end

@end
