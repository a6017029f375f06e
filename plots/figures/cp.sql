-- SPDX-License-Identifier: MIT
-- For each number of ranks and shape that was measured at several lengths: what the ranks give, and what moves cost;
-- each way by its faster transport.
@view each
SELECT *, min(fwd_ms + bwd_ms) OVER (PARTITION BY variant, ranks, batch, heads, heads_kv, head_dim, causal, dtype, seq)
    AS least_ms, 100 * exposed_ms / (fwd_ms + bwd_ms) AS exposed_pct FROM bench_cp
    WHERE status = 'ok' AND ranks > 1 AND "order" = 'head-tail' AND coalesce(groups, 0) = 0 AND deterministic = 0

@view usual
SELECT * FROM each WHERE fwd_ms + bwd_ms = least_ms

@each SELECT ranks, batch, heads, heads_kv, head_dim, causal, dtype, min(id) AS place FROM usual
    GROUP BY 1, 2, 3, 4, 5, 6, 7 HAVING count(DISTINCT seq) > 1 ORDER BY place

@view rows
SELECT * FROM usual WHERE ranks = :ranks AND batch = :batch AND heads = :heads AND heads_kv = :heads_kv
    AND head_dim = :head_dim AND causal = :causal AND dtype = :dtype

@draw cp_{:ranks}_h{:heads}_{:heads_kv}_d{:head_dim}_{:dtype}{iif(:causal, '', '_full')}{iif(:batch > 1, '_b' || :batch, '')}: Attention shared by {:ranks} ranks ({shape(bench, json_remove(options, '$.seq', '$.ranks', '$.order', '$.groups', '$.transport'))})
ranks := SELECT :ranks
seqs = SELECT DISTINCT seq FROM drawn ORDER BY seq
names = SELECT column1 FROM (VALUES ('gather'), ('all-to-all'), ('ring'))
    WHERE column1 IN (SELECT variant FROM drawn)
SELECT *, seq AS x, column1 AS panel, iif(column1 = 1, speedup, exposed_pct) AS y,
    dense_rank() OVER (ORDER BY instr('gather all-to-all ring', variant)) AS style
    FROM rows, (VALUES (1), (2)) ORDER BY seq

@end
