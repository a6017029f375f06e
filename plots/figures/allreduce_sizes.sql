-- SPDX-License-Identifier: MIT
-- For each dtype: all-reduce by number of ranks, the collectives on the most ranks, and our own all-reduces beside the
-- library's. A size that another one exceeds by a few percent would be one point twice.
@view ok
SELECT * FROM bench_allreduce WHERE status = 'ok'

@each SELECT dtype, max(in_place) AS place, (SELECT max(ranks) FROM ok m WHERE m.dtype = ok.dtype) AS most FROM ok
    GROUP BY dtype

@each SELECT column1 AS kind, column2 AS what, column3 AS by, column4 AS suffix, column5 AS variants
FROM (VALUES
    ('ranks', 'All-reduce', 'ranks', ' ranks', 'all-reduce'),
    ('ops', 'Collectives', 'variant', '', 'all-reduce all-gather reduce-scatter broadcast reduce'),
    ('own', 'All-reduce of the library and ours', 'variant', '', 'all-reduce one-shot two-shot'))

@view rows
SELECT * FROM ok WHERE dtype = :dtype AND in_place = :place AND instr(' ' || :variants || ' ', ' ' || variant || ' ')
    AND (:by = 'ranks' OR ranks = :most)

@view numbered
SELECT *, dense_rank() OVER (ORDER BY iif(:by = 'ranks', ranks, instr(:variants, variant))) AS series FROM rows
    WHERE bytes IN (SELECT bytes FROM (SELECT bytes, lead(bytes) OVER (ORDER BY bytes) AS next
    FROM (SELECT DISTINCT bytes FROM rows)) WHERE next IS NULL OR next > 1.08 * bytes)

@if (SELECT count(DISTINCT bytes) FROM rows) > 2
    AND (:kind <> 'own' OR EXISTS (SELECT 1 FROM rows WHERE variant GLOB '*-shot'))

@draw allreduce_{:kind}_{:dtype}: {:what}, {:dtype}
names = SELECT char(34) || iif(:by = 'ranks', ranks, variant) || :suffix || char(34) FROM drawn GROUP BY series
    ORDER BY series
modes := SELECT count(DISTINCT mode) FROM drawn
list = SELECT DISTINCT printf('%d', bytes) FROM drawn ORDER BY bytes
SELECT *, bytes AS x, column1 AS panel, iif(column1 = 1, median_ms, busbw_gb_s) AS y,
    series + 20 * (mode = 'graph' AND EXISTS (SELECT 1 FROM rows WHERE mode = 'eager')) AS style
    FROM numbered, (VALUES (1), (2)) ORDER BY bytes, id

@end

@end

@end
