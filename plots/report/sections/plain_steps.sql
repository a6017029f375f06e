-- SPDX-License-Identifier: MIT
-- plain_steps: whole steps of bench_transformer of the sizes as they are, as a graph where there are graphs; warm_up:
-- means after fewer warm-up steps over that after the most. parts: a forward and a backward with no update beside them;
-- dense_steps: eager ops, the score matrix in memory.

@view plain_steps
SELECT * FROM default_steps
WHERE status = 'ok' AND mode = 'train-step' AND recompute = 'none' AND attention = 'flash' AND coalesce(cold, 0) = 0
    AND warmup = 5 AND coalesce(moments, 'policy') = 'policy' AND coalesce(offload, 'none') = 'none'
    AND coalesce(fp32_products, 'fma') = 'fma' AND coalesce(custom, 0) = 0 AND batch = 4
    AND variant = (SELECT iif(sum(variant = 'graph'), 'graph', 'kernels')
    FROM bench_transformer WHERE status = 'ok')

@view parts
SELECT b.size, b.seq, b.precision, b.fwd_ms, b.bwd_ms, (SELECT opt_alone_ms FROM plain_steps p WHERE p.size = b.size
    AND p.seq = b.seq AND p.precision = b.precision AND p.opt_alone_ms > 0 LIMIT 1) AS opt
FROM default_steps b
WHERE b.status = 'ok' AND b.mode = 'forward-backward' AND b.recompute = 'none' AND b.attention = 'flash'
    AND coalesce(b.cold, 0) = 0 AND coalesce(b.offload, 'none') = 'none' AND coalesce(b.fp32_products, 'fma') = 'fma'
    AND coalesce(b.custom, 0) = 0 AND b.variant = (SELECT max(variant) FROM plain_steps)

@view dense_steps
SELECT * FROM default_steps WHERE status = 'ok' AND mode = 'train-step' AND attention = 'unfused'
    AND variant = 'none' AND recompute = 'none' AND coalesce(custom, 0) = 0 AND coalesce(cold, 0) = 0

@view warm_up
SELECT w.warmup, w.host_step_mean_ms / m.host_step_mean_ms AS ratio
FROM bench_transformer w
JOIN bench_transformer m ON m.variant = w.variant
    AND json_remove(m.options, '$.warmup') = json_remove(w.options, '$.warmup')
    AND m.warmup = (SELECT max(warmup) FROM bench_transformer x WHERE x.variant = w.variant
    AND json_remove(x.options, '$.warmup') = json_remove(w.options, '$.warmup'))
WHERE w.warmup < m.warmup
