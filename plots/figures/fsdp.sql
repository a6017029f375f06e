-- SPDX-License-Identifier: MIT
-- The variants of one model on the same ranks, with the usual options.
@use fsdp_usual

@view models
SELECT size, seq, batch, ranks, precision, wire_dtype FROM usual WHERE recompute = 'none' GROUP BY 1, 2, 3, 4, 5, 6
    ORDER BY count(DISTINCT variant) DESC, min(id) LIMIT 1

@if (SELECT count(DISTINCT variant) FROM usual NATURAL JOIN models) > 1

@draw fsdp: A step and its memory ({max(size)}, S {max(seq)}, batch {max(batch)}, {max(ranks)} ranks)
SELECT u.* FROM usual u NATURAL JOIN models WHERE recompute = 'none' GROUP BY variant ORDER BY min(u.id)
