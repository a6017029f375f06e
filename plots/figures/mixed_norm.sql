-- SPDX-License-Identifier: MIT
@view rows
SELECT * FROM bench_mixed_precision WHERE variant = 'norm' AND magnitude = 1 AND status = 'ok'

@view numbered
SELECT *, min(id) OVER (PARTITION BY dtype) AS first_of_dtype,
    min(id) OVER (PARTITION BY statistics) AS first_of_kind FROM rows

@if (SELECT count(DISTINCT width) FROM rows) > 2

@draw mixed_norm: Norms with statistics in 16 bits
list = SELECT DISTINCT width FROM drawn ORDER BY width
panels = SELECT char(34) || 'x in ' || dtype || char(34) FROM drawn GROUP BY panel ORDER BY panel
names = SELECT char(34) || 'statistics ' || statistics || char(34) FROM drawn GROUP BY kind ORDER BY kind
norms := SELECT count(DISTINCT norm) FROM drawn
SELECT *, width AS x, err_rel AS y, dense_rank() OVER (ORDER BY first_of_dtype) AS panel,
    kind + 20 * (norm = 'layer') AS style
    FROM (SELECT *, dense_rank() OVER (ORDER BY first_of_kind) AS kind FROM numbered) ORDER BY id
