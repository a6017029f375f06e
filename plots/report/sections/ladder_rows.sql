-- SPDX-License-Identifier: MIT
-- Rows that add one feature after the other, as `ladder`: grp, title, place, feature, whether the next ones have it,
-- too ("on"), and gain over the line below it.

@view rungs_alone
SELECT column1 AS nth, column2 AS feature, column3 AS "on", column4 AS level, column5 AS precision,
    column6 AS attention, column7 AS recompute, column8 AS moments, column9 AS offload
FROM (VALUES
    (1, 'fp32, an eager framework''s ops, unfused attention', 1, 'none', 'fp32', 'unfused', 'none', 'policy', 'none'),
    (2, '+ bf16, master weights in fp32', 1, 'none', 'bf16', 'unfused', 'none', 'policy', 'none'),
    (3, '+ flash attention', 1, 'none', 'bf16', 'flash', 'none', 'policy', 'none'),
    (4, '+ fused kernels', 1, 'kernels', 'bf16', 'flash', 'none', 'policy', 'none'),
    (5, '+ one CUDA graph', 1, 'graph', 'bf16', 'flash', 'none', 'policy', 'none'),
    (6, 'with norms and SwiGLU recomputed', 0, NULL, 'bf16', 'flash', 'selective', 'policy', 'none'),
    (7, 'with the attention half recomputed', 0, NULL, 'bf16', 'flash', 'attn', 'policy', 'none'),
    (8, 'with the feed-forward half recomputed', 0, NULL, 'bf16', 'flash', 'mlp', 'policy', 'none'),
    (9, 'with whole blocks recomputed', 0, NULL, 'bf16', 'flash', 'block', 'policy', 'none'),
    (10, 'with blocks'' activations in the host''s memory', 0, NULL, 'bf16', 'flash', 'none', 'policy', 'block'),
    (11, 'with moments in bf16', 0, NULL, 'bf16', 'flash', 'none', 'bf16', 'none'),
    (12, 'with weights and moments only in bf16', 0, NULL, 'bf16-pure', 'flash', 'none', 'policy', 'none'))

@view alone
SELECT *, json_remove(options, '$.precision', '$.attention', '$.recompute', '$.moments', '$.offload') AS same,
    'One GPU: ' || size || ', S ' || seq || ', batch ' || batch AS title FROM bench_transformer
    WHERE mode = 'train-step' AND status <> 'skip'

@view lines_alone
SELECT 'alone ' || t.same AS grp, t.title, r.nth,
    iif(t.heads, r.feature, replace(r.feature, ', unfused attention', '')) AS feature, r."on", t.status, t.step_ms,
    t.peak_bytes, t.init_bytes AS first_bytes, t.tokens_per_s, t.mfu_causal_pct, t.run_of, t.id, t.size, t.seq, NULL
    AS ranks, t.machine, t.gpu, t.utc
FROM alone t
JOIN rungs_alone r ON t.precision = r.precision AND t.recompute = r.recompute
    AND iif(t.heads, t.attention = r.attention, r.nth <> 3) -- without attention there is no step on it
    AND coalesce(t.moments, 'policy') = r.moments AND coalesce(t.offload, 'none') = r.offload
    AND t.variant = coalesce(r.level, iif(EXISTS (SELECT 1 FROM alone g WHERE g.same = t.same AND g.variant = 'graph'),
    'graph', 'kernels'))

@view rungs_ranks
SELECT column1 AS nth, column2 AS feature, column3 AS "on", column4 AS variant, column5 AS precision, column6 AS grads,
    column7 AS recompute, column8 AS reduce, column9 AS small, column10 AS gathers, column11 AS updates
FROM (VALUES
    (1, 'fp32, everything on every rank', 1, 'ddp', 'fp32', 'policy', 'none', 'grad', 'sharded', 'nccl', 'buckets'),
    (2, '+ bf16, gradients in fp32', 1, 'ddp', 'bf16', 'fp32', 'none', 'grad', 'sharded', 'nccl', 'buckets'),
    (3, '+ state in slices (ZeRO-1)', 1, 'zero1', 'bf16', 'fp32', 'none', 'grad', 'sharded', 'nccl', 'buckets'),
    (4, '+ gradients in slices (ZeRO-2)', 1, 'zero2', 'bf16', 'fp32', 'none', 'grad', 'sharded', 'nccl', 'buckets'),
    (5, '+ parameters in slices (FSDP)', 1, 'fsdp', 'bf16', 'fp32', 'none', 'grad', 'sharded', 'nccl', 'buckets'),
    (6, 'with gradients in bf16', 0, 'fsdp', 'bf16', 'policy', 'none', 'grad', 'sharded', 'nccl', 'buckets'),
    (7, 'with gradients sent in bf16', 0, 'fsdp', 'bf16', 'fp32', 'none', 'bf16', 'sharded', 'nccl', 'buckets'),
    (8, 'with whole blocks recomputed', 0, 'fsdp', 'bf16', 'fp32', 'block', 'grad', 'sharded', 'nccl', 'buckets'),
    (9, 'with parameters kept after the forward', 0, 'fsdp-keep', 'bf16', 'fp32', 'none', 'grad', 'sharded', 'nccl',
    'buckets'),
    (10, 'with gains of norms on every rank', 0, 'fsdp', 'bf16', 'fp32', 'none', 'grad', 'replicated', 'nccl',
    'buckets'),
    (11, 'with gathers by copy engines', 0, 'fsdp', 'bf16', 'fp32', 'none', 'grad', 'sharded', 'copy', 'buckets'),
    (12, 'with updates during the backward', 0, 'fsdp', 'bf16', 'fp32', 'none', 'grad', 'sharded', 'nccl', 'backward'),
    (13, 'with everything in fp32', 0, 'fsdp', 'fp32', 'policy', 'none', 'grad', 'sharded', 'nccl', 'buckets'))

@view lines_ranks
SELECT 'ranks ' || t.title AS grp, t.title, r.nth, r.feature, r."on", t.status, t.step_ms, t.peak_bytes,
    t.param_bytes + t.state_bytes AS first_bytes, t.tokens_per_s, t.mfu_causal_pct, t.run_of, t.id, t.size, t.seq,
    t.ranks, t.machine, t.gpu, t.utc
FROM (SELECT *, 'Several ranks: ' || size || ', S ' || seq || ', batch ' || batch || ' on each of ' || ranks || ' ranks'
    || iif(device = 'cpu', ' on the CPU', '') AS title FROM bench_fsdp WHERE mode = 'train-step' AND status <> 'skip'
    AND ranks > 1 AND coalesce(prefetch, 1) = 1 AND coalesce(free_every, 1) = 1 AND coalesce(micro_batches, 1) = 1
    AND coalesce(clip, 0) = 0 AND coalesce(moments, 'policy') = 'policy' AND coalesce(offload, 'none') = 'none'
    AND update_blocks = 0 AND max_ctas = 0 AND fusion = 'kernels' AND overlap = 'none'
    AND coalesce(custom, 0) = 0 AND coalesce(reduce, 'nccl') = 'nccl') t
JOIN rungs_ranks r ON t.variant = r.variant AND t.precision = r.precision AND t.grad_dtype = r.grads
    AND t.recompute = r.recompute AND coalesce(t.reduce_dtype, 'grad') = r.reduce
    AND coalesce(t.small, 'sharded') = r.small AND coalesce(t."gather", 'nccl') = r.gathers AND t."update" = r.updates

@view lines
SELECT *, count(*) OVER (PARTITION BY grp) AS lines
    FROM (SELECT *, row_number() OVER (PARTITION BY grp, nth ORDER BY id) AS again
    FROM (SELECT * FROM lines_alone UNION ALL SELECT * FROM lines_ranks)) WHERE again = 1

-- What a line is compared with: the last line with + above it. Ratios are within one run on one GPU.
@view ladder
SELECT l.*, dense_rank() OVER (ORDER BY l.grp GLOB 'ranks*',
    size_place(substr(l.title, instr(l.title, ': ') + 2, instr(l.title, ',') - instr(l.title, ': ') - 2)), l.grp) * 100
    + l.nth AS place, max(l.peak_bytes) OVER (PARTITION BY l.grp) > 0.5 * gib() AS big, b.peak_bytes AS below_peak,
    iif(b.run_of = l.run_of, b.step_ms / l.step_ms, NULL) AS gain
FROM lines l
LEFT JOIN lines b ON b.grp = l.grp AND b.nth = (SELECT max(nth) FROM lines o WHERE o.grp = l.grp AND o."on"
    AND o.nth < l.nth) AND b.status = 'ok'
WHERE l.lines >= 4
