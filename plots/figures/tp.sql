-- SPDX-License-Identifier: MIT
-- The ways of one model on the same ranks: what a step is made of, beside one rank's.
@view cases
SELECT size, seq, batch, ranks, precision, run_of, max(id) AS last FROM bench_tp
    WHERE status = 'ok' AND one_ms IS NOT NULL AND loss = 'parallel' AND recompute = 'none' AND micro_batches = 1
        AND max_ctas = 0 AND coalesce(mesh, 'tp') = 'tp' AND clip = 0 AND custom = 0
    GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY count(DISTINCT variant) DESC, last DESC LIMIT 1

@view rows
SELECT b.*, b.variant || iif(b.overlap <> 'none', ', ' || b.overlap || ' aside', '')
    || iif(coalesce(b.regather, 1) = 0, ', rows kept', '') AS name
FROM bench_tp b NATURAL JOIN cases
WHERE b.status = 'ok' AND b.loss = 'parallel' AND b.recompute = 'none' AND b.micro_batches = 1 AND b.max_ctas = 0
    AND coalesce(b.mesh, 'tp') = 'tp' AND b.clip = 0 AND b.custom = 0

@if (SELECT count(DISTINCT name) FROM rows) > 1

@draw tp: Sharing a layer ({max(size)}, S {max(seq)}, batch {max(batch)}, {max(ranks)} ranks, {max(precision)})
SELECT * FROM rows GROUP BY name ORDER BY min(id)
