-- SPDX-License-Identifier: MIT
-- Rows of bench_transformer with the usual warm-up where there are any, none of a cold process, as `warm`; `level` is
-- the level of fusion that stands for the machine.

@view warm
SELECT * FROM bench_transformer WHERE coalesce(cold, 0) = 0
    AND (warmup = 5 OR NOT EXISTS (SELECT 1 FROM bench_transformer WHERE coalesce(cold, 0) = 0 AND warmup = 5))

@view level
SELECT iif(sum(variant = 'kernels') > 0 AND sum(variant = 'graph') = 0, 'kernels', 'graph') AS variant FROM warm
    WHERE status = 'ok'
