-- SPDX-License-Identifier: MIT
-- The rows of the benches of data parallelism as one table, `ddp`. Rows that differ in nothing but the strategy, its
-- buckets and how it is run are a group; groups and strategies are in the order in which they are read.

@union ddp_all bench_ddp_naive bench_ddp_flat bench_ddp_overlap bench_ddp_bucketed bench_zero1

@view ddp_named
SELECT *, coalesce(wire_dtype, CASE
    WHEN grad_dtype = 'fp32' OR precision GLOB '*32' THEN 'fp32'
    WHEN precision = 'fp16' THEN 'fp16'
    ELSE 'bf16' END) AS wire, substr(iif("update" <> iif(variant GLOB 'naive*' OR variant GLOB 'flat*', 'after',
    'buckets'), ' + update ' || "update", '') || iif(update_blocks <> 0, ' + of ' || update_blocks || ' blocks', '')
    || iif(max_ctas <> 0, ' + ' || max_ctas || iif(max_ctas = 1, ' CTA', ' CTAs'), '')
    || iif(overlap <> 'none', ' + during backward: ' || overlap, '') || iif(fusion <> 'kernels', ' + ' || fusion, ''),
    4) AS how,
    instr('fp32 tf32 bf16 bf16-pure fp16', precision) AS precision_place
FROM ddp_all
WHERE status <> 'skip'

@view ddp_groups
SELECT *, json_remove(options, '$.bucket_mb', '$.grad_dtype', '$.update', '$.update_blocks', '$.max_ctas', '$.overlap',
    '$.fusion') || wire AS same, size || ', batch ' || batch || ' per rank, S ' || seq || ', ' || precision
    || ', gradients ' || wire || ', ' || counted(ranks, 'rank')
    || iif(recompute <> 'none', ', recompute ' || recompute, '')
    || iif(attention <> 'flash', ', attention ' || attention, '')
    || iif(json_extract(options, '$.layers') > 0, ', layers ' || layers, '')
    || iif(device = 'cpu', ', on CPUs', '') AS title,
    variant || iif(bucket_mb IS NOT NULL, printf(' %.6g MB', bucket_mb), '')
    || iif(how <> '', ' (' || how || ')', '') AS label
FROM ddp_named

@view ddp
SELECT *, dense_rank() OVER (ORDER BY size_place(size), batch, ranks, precision_place, wire, seq, same) AS grp,
    row_number() OVER (ORDER BY size_place(size), batch, ranks, precision_place, wire, seq, same, CASE variant
    WHEN 'naive' THEN 1
    WHEN 'naive-grouped' THEN 2
    WHEN 'flat' THEN 3
    WHEN 'flat-copy' THEN 4
    WHEN 'overlap' THEN 5
    WHEN 'bucketed' THEN 6
    WHEN 'unsharded' THEN 7
    WHEN 'zero1' THEN 8
    WHEN 'zero1-broadcast' THEN 9
    ELSE 10 END, how, bucket_mb, bench_table, id) AS place
FROM ddp_groups

-- The size with the most rows, of equals the largest.
@view main_size
SELECT size FROM ddp GROUP BY size ORDER BY count(*) DESC, size_place(size) DESC LIMIT 1

-- The row of a group that stands for a strategy: with default options where there are any, the least exposed.
@view best
SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY grp, variant ORDER BY how <> '', exposed_ms, place) AS nth,
    count(*) OVER (PARTITION BY grp, variant, how <> '') AS chosen_from FROM ddp WHERE status = 'ok'
    AND exposed_ms IS NOT NULL) WHERE nth = 1
