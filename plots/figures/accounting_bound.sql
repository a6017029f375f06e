-- SPDX-License-Identifier: MIT
@view paper
SELECT * FROM bench_accounting WHERE status = 'ok' AND variant IN ('batch', 'compute_bound') AND d_model = 16384
    AND x = 16 AND y = 4 AND (matrices = 2 OR matrices IS NULL)

@if (SELECT count(DISTINCT way) FROM paper) > 1 AND (SELECT count(DISTINCT at_tokens) FROM paper) > 1

@draw accounting_bound: Bound by compute or by communication (d {max(d_model)}, F {max(d_ff)}, X {max(x)}, Y {max(y)})
ways = SELECT column1 FROM (VALUES
    ('as-given'),
    ('overlap-axes'),
    ('more-axes'),
    ('best-whole-split'),
    ('best-split'),
    ('8bit-weights'),
    ('8bit-all'),
    ('keep-weights'),
    ('faster-link'),
    ('context')) WHERE column1 IN (SELECT way FROM drawn)
least = SELECT 'tokens_least'
SELECT * FROM paper ORDER BY id
