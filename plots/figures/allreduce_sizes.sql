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

@if (SELECT count(DISTINCT bytes) FROM rows) > 2
    AND (:kind <> 'own' OR EXISTS (SELECT 1 FROM rows WHERE variant GLOB '*-shot'))

@draw allreduce_{:kind}_{:dtype}: {:what}, {:dtype}
by = SELECT :by
suffix = SELECT :suffix
series = SELECT iif(:by = 'ranks', ranks, variant) FROM drawn GROUP BY 1
    ORDER BY iif(:by = 'ranks', ranks, instr(:variants, variant))
sizes = SELECT printf('%.0f', bytes) FROM (SELECT bytes, lead(bytes) OVER (ORDER BY bytes) AS next
    FROM (SELECT DISTINCT bytes FROM drawn)) WHERE next IS NULL OR next > 1.08 * bytes ORDER BY bytes
modes = SELECT column1 FROM (VALUES ('eager'), ('graph')) WHERE column1 IN (SELECT mode FROM drawn)
SELECT * FROM rows ORDER BY bytes, id

@end

@end

@end
