-- SPDX-License-Identifier: MIT
-- A figure for each model, context and pair of dtypes whose steps were timed on three or more numbers of ranks.
@use fsdp_usual

@each SELECT size, seq, precision, wire_dtype, min(id) AS first FROM usual WHERE recompute = 'none' GROUP BY 1, 2, 3, 4
    HAVING count(DISTINCT ranks) > 2 ORDER BY first

@view rows
SELECT * FROM usual WHERE recompute = 'none' AND size = :size AND seq = :seq AND precision = :precision
    AND wire_dtype = :wire_dtype

@draw ranks_scaling_{:size}_{:seq}_{:precision}_{:wire_dtype}: Over ranks ({:size}, S {:seq}, {:precision}, gradients {:wire_dtype})
ranks = SELECT DISTINCT ranks FROM drawn ORDER BY ranks
weak := SELECT max(batch) FROM (SELECT batch FROM drawn GROUP BY batch HAVING count(DISTINCT ranks) > 2)
strong := SELECT max(global_batch) FROM (SELECT global_batch FROM drawn GROUP BY global_batch
    HAVING count(DISTINCT ranks) > 2)
variants = SELECT column1 FROM (VALUES ('ddp'), ('zero1'), ('zero2'), ('fsdp'), ('fsdp-keep'), ('hsdp'))
    WHERE column1 IN (SELECT variant FROM drawn)
SELECT * FROM rows ORDER BY variant, ranks

@end
