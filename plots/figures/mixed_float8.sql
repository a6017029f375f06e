-- SPDX-License-Identifier: MIT
-- Error of positive products against k, and rates of N(0,1) by shape: the two sides of whether float8 pays. Points of
-- error are joined in the order of k.
@view float8
SELECT *, CAST(substr(shape, instr(shape, 'x') + instr(substr(shape, instr(shape, 'x') + 1), 'x') + 1) AS INTEGER) AS k
FROM bench_mixed_precision WHERE variant = 'float8' AND status = 'ok'

@if (SELECT count(DISTINCT k) FROM float8 WHERE "values" = 'positive') > 1

@draw mixed_float8: Products of float8: error of sums of positive numbers, and rate
products = SELECT column1 FROM (VALUES ('bf16'), ('tensor-fast'), ('tensor'), ('row-fast'), ('row'), ('block'))
    WHERE column1 IN (SELECT product FROM drawn)
shapes = SELECT shape FROM drawn WHERE "values" = 'normal' AND product = 'bf16' GROUP BY shape ORDER BY min(rowid)
ks = SELECT DISTINCT k FROM drawn WHERE "values" = 'positive' ORDER BY k
SELECT *, "values" AS kind FROM float8 WHERE "values" IN ('normal', 'positive') ORDER BY k, id
