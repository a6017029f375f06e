-- SPDX-License-Identifier: MIT
@section 30 bench_flash: FlashAttention against unfused attention
@of bench_flash

@figures flash_

@use flash_plain

{shape(bench, json_remove(options, '$.seq', '$.head_dim', '$.dtype'))}. Times are medians. Speedups are over unfused
attention, shares of the best measured product; errors are relative to attention in fp64.
@from plain

@each SELECT dtype, min(id) AS place FROM plain GROUP BY dtype ORDER BY place

### {:dtype}

Flash takes less time than unfused in {sum(speedup_fwd > 1)} of {count(speedup_fwd)} forwards
({span(min(speedup_fwd), max(speedup_fwd))} times as fast) and in {sum(speedup_bwd > 1)} of {count(speedup_bwd)}
backwards ({span(min(speedup_bwd), max(speedup_bwd))} times).
@from plain WHERE dtype = :dtype AND variant = 'flash' AND status = 'ok' HAVING count(speedup_fwd)

@table
SELECT f.status, f.head_dim AS "D:", f.seq AS "S:", f.fwd_ms AS "forward ms:", u.fwd_ms AS "unfused?:",
    f.fwd_tflops AS "TFLOP/s:", f.fwd_ceiling_pct AS "%?:", f.speedup_fwd AS "times as fast?:",
    f.bwd_ms AS "backward ms:", u.bwd_ms AS "unfused ms?:", f.bwd_tflops AS "TFLOP/s :", f.bwd_ceiling_pct AS "% ?:",
    f.speedup_bwd AS "times as fast ?:", f.fwd_bwd_ms AS "both ms:", u.fwd_bwd_ms AS "both, unfused?:",
    f.peak_bytes / mib() AS "peak MiB:", u.peak_bytes / mib() AS "unfused MiB?:", f.err_fwd AS "error of o:",
    max(f.err_dq, f.err_dk, f.err_dv) AS "of gradients:"
FROM plain f
LEFT JOIN plain u ON u.variant = 'unfused' AND u.dtype = f.dtype AND u.head_dim = f.head_dim AND u.seq = f.seq
    AND u.status = 'ok'
WHERE f.variant = 'flash' AND f.dtype = :dtype AND f.status <> 'skip' ORDER BY f.head_dim, f.seq

@end

@view others
SELECT * FROM bench_flash WHERE id NOT IN (SELECT id FROM plain) AND status <> 'skip'

### Other shapes
@from (SELECT 1 FROM others LIMIT 1)

@table
SELECT status, case_name(bench, variant, options) AS "case", fwd_ms AS "forward ms:", bwd_ms AS "backward ms:",
    fwd_bwd_ms AS "both ms:", fwd_tflops AS "TFLOP/s forward:", bwd_tflops AS "backward:",
    peak_bytes / mib() AS "peak MiB:" FROM others ORDER BY id

@view steady
SELECT id AS place, case_name(bench, variant, options) || ', forward' AS name, fwd_ms AS burst,
    iif(long, sustained_fwd_ms, NULL) AS sustained, sustained_fwd_sm_mhz AS mhz, sustained_fwd_power_w AS watts,
    iif(long, NULL, fwd_j) AS joules, fwd_tflop_per_j AS per_j
FROM (SELECT *, 1 AS long FROM steady_bench_flash UNION ALL SELECT *, 0 FROM bench_flash)
WHERE status = 'ok'
UNION ALL SELECT id + 0.5, case_name(bench, variant, options) || ', backward', bwd_ms,
    iif(long, sustained_bwd_ms, NULL), sustained_bwd_sm_mhz, sustained_bwd_power_w, iif(long, NULL, bwd_j),
    bwd_tflop_per_j
FROM (SELECT *, 1 AS long FROM steady_bench_flash UNION ALL SELECT *, 0 FROM bench_flash)
WHERE status = 'ok'

@use steady TFLOP

### Attention in turn with its peers
@from (SELECT 1 FROM attention_pairs LIMIT 1)

CUDA graphs of each implementation are replayed one after the other in one process, on the same tensors. The ratio is
the peer's time over ours in the same round, median [least, largest]; the error is the relative L2 from fp64. PyTorch
{torch}, CUDA {cuda}, cuDNN {cudnn}, driver {driver}, {gpu}.
@from attention_pairs ORDER BY id DESC LIMIT 1

@table
SELECT peer, dtype, place AS shape, n(fwd_ms) || ', ' || n(our_fwd_ms) AS "forward ms: theirs, ours:",
    coalesce(fwd_why, range(fwd_ratio, fwd_ratio_lo, fwd_ratio_hi)) AS "ratio:",
    iif(reference = 'fp64', n(fwd_diff) || ', ' || n(our_fwd_diff), NULL) AS "error: theirs, ours?:", n(bwd_ms) || ', '
    || n(our_bwd_ms) AS "backward ms: theirs, ours:",
    coalesce(bwd_why, range(bwd_ratio, bwd_ratio_lo, bwd_ratio_hi)) AS "ratio :",
    iif(reference = 'fp64', n(bwd_diff) || ', ' || n(our_bwd_diff), NULL) AS "error: theirs, ours ?:"
FROM attention_pairs
WHERE our_id IS NOT NULL AND coalesce(fwd_ratio, bwd_ratio) IS NOT NULL ORDER BY our_id, coalesce(fwd_ratio, bwd_ratio)
