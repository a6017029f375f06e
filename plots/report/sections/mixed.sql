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

### Speed-up over fp32

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
