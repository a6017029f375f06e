-- SPDX-License-Identifier: MIT
@section 80 bench_mixed_precision: what low precision costs and gives
@of bench_mixed_precision

### Sums of the same number

An fp32 sum of 16-bit numbers is off by what each number lost when it was stored; a 16-bit sum loses at every addition,
and stalls once the number is less than half a step of it. Carrying the lost part along (Kahan) fixes that, at four
operations instead of one.
@from (SELECT 1 FROM bench_mixed_precision WHERE variant = 'accumulate' LIMIT 1)

@grid
SELECT pair AS "sum + addend", "sum" || ':' AS across,
    iif(status = 'ok', value || iif(stalls_after IS NULL, '', ', stalls after ' || CAST(stalls_after AS INTEGER)),
    status) AS cell
FROM bench_mixed_precision
WHERE pair IS NOT NULL AND "sum" IS NOT NULL
    ORDER BY (SELECT min(id) FROM bench_mixed_precision p WHERE p.pair = bench_mixed_precision.pair), "sum"

### Dtypes under autocast

Linear layers run in the 16-bit dtype and ReLU in the dtype it is given; LayerNorm and the loss stay in fp32.

@grid
SELECT tensor, dtype || ':' AS across, iif(status = 'ok', tensor_dtype, status) AS cell
FROM bench_mixed_precision b
WHERE tensor IS NOT NULL ORDER BY (SELECT min(id) FROM bench_mixed_precision t WHERE t.tensor = b.tensor),
    dtype = 'bf16', dtype = 'fp16', id

### Norms with statistics in 16 bits

Relative error of y against double. own: squares, their mean and the root are stored in the dtype of x; own-sums: they
are also summed in it. In fp16 the square of 256 overflows; bf16 has the range, but a sum of squares stalls after some
hundreds of terms. So statistics belong in fp32 under bf16, too.

@figures mixed_norm

@grid
SELECT norm, dtype AS "x", statistics, 'width ' || width || ', magnitude ' || printf('%.6g', magnitude)
    || ':' AS across, iif(status = 'ok', coalesce(n(err_rel), '-')
    || iif(rows_overflowed > 0, ', ' || rows_overflowed || ' rows overflow', ''), status) AS cell
FROM bench_mixed_precision
WHERE norm IS NOT NULL AND (magnitude = 1 OR width = (SELECT max(width) FROM bench_mixed_precision))
    ORDER BY norm, dtype = 'bf16', dtype = 'fp16', statistics, magnitude <> 1, magnitude, width

### Does float8 pay?

@view float8
SELECT *, (SELECT min(id) FROM bench_mixed_precision p WHERE p.variant = 'float8' AND p.product = b.product) AS place,
    CAST(substr(shape, instr(shape, 'x') + instr(substr(shape, instr(shape, 'x') + 1), 'x') + 1) AS INTEGER) AS k,
    CAST(substr(shape, instr(shape, 'x') + 1) AS INTEGER) AS columns
FROM bench_mixed_precision b WHERE variant = 'float8'

With exact sums, products of float8 are {n(min(speedup_bf16))} to {n(max(speedup_bf16))} times as fast as those of
bf16; where A is cast for one product alone, cast included, {n(min(speedup_with_cast))} to {n(max(speedup_with_cast))}
times.
@from (SELECT * FROM float8 WHERE status = 'ok' AND "values" = 'normal'
    AND product NOT IN ('bf16', 'tensor-fast', 'row-fast') AND device = 'cuda') GROUP BY 1 = 1

A product of float8 loses some 4 % of N(0,1), whatever k is, where one of bf16 loses 0.2 %. That is what its codes lose:
the sums add little, unless they are fast and all products have one sign. Where magnitudes differ within what shares a
scale, small numbers become zero (`underflow_pct`).

@figures mixed_float8

Error of the product against its operands in bf16, and share of A's elements that become zero:

@grid
SELECT shape, product, "values" || ':' AS across,
    iif(status = 'ok', printf('%.2g', 100 * err_rel) || ' %'
    || iif(underflow_pct >= 0.005, ', ' || printf('%.2g', underflow_pct) || ' % zero', ''), status) AS cell
FROM float8 WHERE shape IN (SELECT shape FROM float8 GROUP BY shape HAVING count(DISTINCT "values") > 1)
    ORDER BY k, shape, place, id

@if (SELECT count(*) FROM float8 WHERE device = 'cuda')

Each cell: rate of the product, how many times faster than bf16 it is, and how many times with the cast of A.

@grid
SELECT shape, product || ':' AS across,
    iif(status = 'ok', n(product_tflops) || ' TFLOP/s: ' || coalesce(n(speedup_bf16), '-') || ' / '
    || coalesce(n(speedup_with_cast), '-'), status) AS cell
FROM float8 WHERE "values" = 'normal' ORDER BY id

-- ---- y, dx and dw of the four linear layers of a block of xl, 4096 tokens ----
@view layer_products
SELECT (SELECT max(product_ms) FROM float8 f WHERE f.shape = column1 AND f.product = column2 AND f.status = 'ok'
    AND f."values" = 'normal') AS ours,
    (SELECT min(median_ms) FROM peer_fp8 p WHERE p.shape = column1 AND p.product = column2) AS theirs
FROM (VALUES ('4096x4800x1600', 'tensor-fast'), ('4096x1600x1600', 'tensor-fast'), ('4096x12800x1600', 'tensor-fast'),
    ('4096x1600x6400', 'tensor-fast'), ('4096x1600x4800', 'tensor-e5m2'), ('4096x1600x1600', 'tensor-e5m2'),
    ('4096x1600x12800', 'tensor-e5m2'), ('4096x6400x1600', 'tensor-e5m2'), ('4800x1600x4096', 'tensor-e5m2'),
    ('1600x1600x4096', 'tensor-e5m2'), ('12800x1600x4096', 'tensor-e5m2'), ('1600x6400x4096', 'tensor-e5m2'))

The twelve products of a block of xl, as fp8-tensorwise has them, take {n(ours)} ms{iif(theirs,
', and PyTorch''s ' || n(theirs) || ' ms, ' || n(theirs / ours) || ' times as long (' || each || ')', '')}.
@from (SELECT sum(ours) AS ours, iif(count(theirs) = 12, sum(theirs), NULL) AS theirs,
    n(min(theirs / ours)) || ' to ' || n(max(theirs / ours)) AS each FROM layer_products HAVING count(ours) = 12)

Casting A in both orders, compared with a copy of as many bytes (where K is at most N), and with the words of its
largest magnitudes where scales need them:

@grid
SELECT shape, product || ':' AS across,
    iif(status = 'ok', n(cast_ms) || ' ms, ' || n(cast_gb_s) || ' GB/s'
    || coalesce(' (' || n(iif(k <= columns, cast_copy_pct, NULL)) || ' % of a copy)', '')
    || coalesce(' + ' || n(amax_ms) || ' ms', ''), status) AS cell
FROM float8 WHERE "values" = 'normal' AND product <> 'bf16' ORDER BY id

@end

### Speedup over fp32

Each cell: time of a step, then how many times faster than fp32 (by fused multiply-adds) forward, backward and the whole
step are.

@figures mixed_speedup

@grid
SELECT size, seq AS "S:", precision || ':' AS across,
    iif(status = 'ok', n(step_ms) || ' ms: ' || n(speedup_fwd) || ' / ' || n(speedup_bwd) || ' / ' || n(speedup_step),
    status) AS cell
FROM bench_mixed_precision
WHERE size IS NOT NULL ORDER BY size_place(size), seq, CASE precision
    WHEN 'fp32' THEN 1
    WHEN 'tf32' THEN 2
    WHEN 'bf16' THEN 3
    WHEN 'bf16-pure' THEN 4
    ELSE 5 END
