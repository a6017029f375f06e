-- SPDX-License-Identifier: MIT
-- Peers beside ours. Every row of a peer that does the same work as one of ours becomes a row of `pairs`; one list of
-- rules, below, says which of them give a ratio. A ratio is the peer's time over ours: below 1 the peer is faster.
-- Columns table_ and row_id name our row. Timed: 'graph' without launches, 'calls' with them, NULL does not matter.
@section -30 Peers

@into pairs
SELECT '' AS work, '' AS library, '' AS peer, '' AS place, 0.0 AS ratio, 0.0 AS low, 0.0 AS high, '' AS table_,
    0 AS row_id, 0.0 AS memory, '' AS their_gpu, '' AS our_gpu, '' AS their_run, '' AS our_run, '' AS their_timer,
    '' AS our_timer, '' AS their_settling, '' AS our_settling, '' AS checked, 0 AS is_step, 0.0 AS busy,
    0.0 AS their_mfu
WHERE 0

-- ---- attention, in turn with ours: CUDA graphs of both, replayed alternately in one process ----
-- Older files have neither windows nor documents. Each mask, and the deterministic backward, is a work of its own.
@view flash_rows
SELECT *, coalesce("window", -1) AS window_, coalesce(documents, 0) AS documents_,
    coalesce(lengths, 'equal') AS lengths_, coalesce(deterministic, 0) AS deterministic_
FROM peer_flash

@view flash_pairs
SELECT p.*, iif(p.deterministic_, 'deterministic ', '') || 'attention' || iif(p.window_ >= 0, ' in a window', '')
    || iif(p.documents_, ' of packed documents', '') AS kind, o.fwd_ms AS our_fwd_ms,
    o.bwd_ms AS our_bwd_ms, o.fwd_diff AS our_fwd_diff, o.bwd_diff AS our_bwd_diff, o.id AS our_id,
    o.gpu_uuid AS our_gpu, o.run_id AS our_run, CASE p.impl
    WHEN 'fa4' THEN 'FlashAttention-4'
    WHEN 'sdpa_cudnn' THEN 'cuDNN'
    WHEN 'sdpa_fa2' THEN 'FlashAttention-2'
    WHEN 'varlen_fa2' THEN 'FlashAttention-2'
    WHEN 'flex' THEN 'FlexAttention'
    WHEN 'fa3' THEN 'FlashAttention-3'
    WHEN 'sdpa_efficient' THEN 'PyTorch''s efficient attention'
    ELSE p.impl END AS peer, 'B ' || p.batch || ', H ' || p.heads || iif(p.heads_kv <> p.heads, ' / ' || p.heads_kv, '')
    || ', S ' || p.seq || ', D ' || p.head_dim || iif(p.head_dim_v NOT IN (0, p.head_dim), ' / ' || p.head_dim_v, '')
    || iif(p.causal, '', ', full') || iif(p.window_ >= 0, ', window ' || p.window_, '')
    || iif(p.documents_, ', ' || p.documents_ || ' documents of ' || p.lengths_ || ' lengths', '')
    || iif(p.deterministic_, ', deterministic', '') AS place, CASE
    WHEN p.heads = 1 THEN ', one head'
    WHEN p.batch * p.heads * p.seq / 128 >= 264 THEN ', full loads'
    ELSE ', small loads' END AS load
FROM flash_rows p
LEFT JOIN flash_rows o ON o.impl = 'stepbench' AND o.dtype = p.dtype AND o.batch = p.batch AND o.heads = p.heads
    AND o.heads_kv = p.heads_kv AND o.seq = p.seq AND o.head_dim = p.head_dim AND o.head_dim_v IS p.head_dim_v
    AND o.causal = p.causal AND o.window_ = p.window_ AND o.documents_ = p.documents_ AND o.lengths_ = p.lengths_
    AND o.deterministic_ = p.deterministic_
WHERE p.impl <> 'stepbench'

@into pairs
SELECT kind || ', forward, ' || dtype || load, NULL, peer, place, fwd_ratio, fwd_ratio_lo, fwd_ratio_hi, 'peer_flash',
    our_id, NULL, gpu_uuid, our_gpu, run_id, our_run, 'graph', 'graph', NULL, NULL,
    CASE WHEN fwd_diff IS NULL THEN 'the peer''s result was not checked' WHEN fwd_diff > attention_bound(dtype, 0)
    THEN 'the peer''s result is wrong' END, 0, NULL, NULL
FROM flash_pairs
WHERE fwd_ratio IS NOT NULL AND our_id IS NOT NULL ORDER BY id

@into pairs
SELECT kind || ', backward, ' || dtype || load, NULL, peer, place, bwd_ratio, bwd_ratio_lo, bwd_ratio_hi, 'peer_flash',
    our_id, NULL, gpu_uuid, our_gpu, run_id, our_run, 'graph', 'graph', NULL, NULL,
    CASE WHEN bwd_diff IS NULL THEN 'the peer''s result was not checked' WHEN bwd_diff > attention_bound(dtype, 1)
    THEN 'the peer''s result is wrong' END, 0, NULL, NULL
FROM flash_pairs
WHERE bwd_ratio IS NOT NULL AND our_id IS NOT NULL ORDER BY id

-- ---- products and copies ----
@into pairs
SELECT iif(p.bench = 'copy', 'memory copy', 'matrix product, ' || p.dtype), iif(p.bench = 'copy', NULL, 'cuBLAS'),
    'PyTorch', iif(p.bench = 'copy', bytes(p.size), 'n ' || p.size), 1e3 * p.median_ms / o.time_us,
    1e3 * p.p10_ms / o.time_p90_us, 1e3 * p.p90_ms / o.time_p10_us,
    'bench_roofline', o.id, NULL, p.gpu_uuid, o.gpu_uuid, p.run_id, coalesce(o.campaign, o.run_id),
    iif(p.mode IN ('eager', 'event', 'host'), 'calls', 'graph'),
    iif(o.timer IN ('eager', 'event', 'host'), 'calls', 'graph'),
    iif(instr(p.policy, 'samples after'), 'settled', 'not'), iif(o.settle_s > 0, 'settled', 'not'), NULL, 0, NULL, NULL
FROM peer_gemm p
JOIN bench_roofline o ON o.status = 'ok'
    AND iif(p.bench = 'copy', o.variant = 'copy_kernel' AND o.bytes = p.size, o.variant = 'gemm' AND o.dtype = p.dtype
    AND o.size = p.size) ORDER BY p.id

-- ---- products of float8: by cuBLAS on both sides, but for DeepGEMM; by row PyTorch may have its own kernel ----
@into pairs
SELECT 'float8 product, ' || iif(p.product LIKE 'row%', 'by row', p.product),
    iif(p.product LIKE 'row%' OR instr(p.policy, 'deep_gemm') = 1, NULL, 'cuBLAS'),
    iif(instr(p.policy, 'deep_gemm') = 1, 'DeepGEMM', 'PyTorch'),
    p.shape || iif(p.product LIKE 'row%', ', ' || p.product, ''),
    p.median_ms / o.product_ms, p.p10_ms / o.product_p90_ms, p.p90_ms / o.product_p10_ms,
    'bench_mixed_precision', o.id, NULL, p.gpu_uuid, o.gpu_uuid, p.run_id,
    coalesce(o.campaign, o.run_id), iif(p.mode IN ('eager', 'event', 'host'), 'calls', 'graph'),
    iif(o.timer_product IN ('eager', 'event', 'host'), 'calls', 'graph'),
    iif(instr(p.policy, 'samples after'), 'settled', 'not'), iif(o.settle_s > 0, 'settled', 'not'),
    CASE WHEN p.err_rel IS NULL THEN 'the peer''s result was not checked' WHEN NOT p.err_rel <= 0.075
    THEN 'the peer''s result is wrong' END, 0, NULL, NULL
FROM peer_fp8 p
JOIN bench_mixed_precision o ON o.status = 'ok' AND o.variant = 'float8' AND o."values" = 'normal'
    AND o.product = p.product AND o.shape = p.shape
WHERE p.median_ms IS NOT NULL AND p.product <> 'bf16' ORDER BY p.id

-- ---- a step of one GPU: the ways to run PyTorch's, the strongest first ----
-- Our steps as they run by default: one with another --overlap stands for its case only where its run has no
-- default one.
@into default_steps
SELECT *
FROM bench_transformer o
WHERE coalesce(deterministic, 0) = 0 AND coalesce(grad_dtype, 'policy') = 'policy' AND (overlap = 'auto'
    OR NOT EXISTS (SELECT 1 FROM bench_transformer d WHERE d.overlap = 'auto' AND d.status = 'ok'
    AND d.variant = o.variant AND d.run_of = o.run_of
    AND json_remove(d.options, '$.overlap') = json_remove(o.options, '$.overlap')))

-- Both start from the same parameters and tokens: the losses of their third steps stand beside the ratio and must
-- agree.
@view ways
SELECT column1 AS mode, column2 AS master, column3 AS named
FROM (VALUES
    ('fused-graph', 'bf16rest', 'fused, in one graph, fp32 remainders'),
    ('fused-graph', 'ao', 'with torchao, fused, in one graph'),
    ('fused-graph', NULL, 'fused, in one graph'),
    ('step-graph', 'bf16master', 'in one graph, fp32 master'),
    ('step-graph', NULL, 'in one graph'),
    ('step-graph', 'ao', 'with torchao, in one graph'),
    ('compile-graph', 'bf16master', 'compiled, graphs, fp32 master'),
    ('compile-graph', NULL, 'compiled, graphs'),
    ('compile', 'bf16master', 'compiled, fp32 master'),
    ('compile', NULL, 'compiled'),
    ('eager', NULL, 'eager'))

@into pairs
SELECT 'training step, ' || o.precision || iif(o.precision = 'fp32' AND o.fp32_products <> 'fma', ' by fp16 parts', ''),
    NULL, 'PyTorch ' || w.named || CASE WHEN p.attn <> 'sdpa' THEN ', attention ' || p.attn
    WHEN p.attn_kernel GLOB '*cudnn*' THEN ', attention by cuDNN'
    WHEN p.attn_kernel GLOB '*flash*' THEN ', attention by FlashAttention-2' ELSE '' END
    || iif(p.optimizer = 'beside', ', AdamW during the backward', '')
    || coalesce(' (loss ' || n4(p.loss_third) || ', ours ' || n4(o.loss_third) || ')', ''),
    o.size || ', S ' || o.seq || ', batch ' || o.batch, p.step_ms / o.step_ms, p.step_p10_ms / o.step_p90_ms,
    p.step_p90_ms / o.step_p10_ms, 'bench_transformer', o.id, p.peak_gib * gib() / o.peak_bytes, p.gpu_uuid,
    o.gpu_uuid, p.run_id, coalesce(o.campaign, o.run_id), NULL, NULL, NULL, NULL,
    CASE WHEN p.loss IN ('nan', 'inf', '-inf') THEN 'the peer''s result is wrong'
    WHEN p.loss_third IS NOT NULL AND o.loss_third IS NULL THEN 'our row has no third loss to compare'
    WHEN abs(p.loss_third - o.loss_third) > iif(o.precision GLOB '*32', 0.005, 0.02) * o.loss_third
    THEN 'the peer''s losses differ from ours' END, 1,
    coalesce(p.gpu_busy_pct, iif(p.mode GLOB '*-graph' AND p.mode <> 'compile-graph', 100, NULL)), p.mfu_pct
FROM default_steps o
JOIN ways w
JOIN peer_model p ON p.size = o.size AND p.seq = o.seq AND p.batch = o.batch AND p.attn <> 'naive'
    AND (p.mode = w.mode OR (w.mode = 'step-graph' AND p.mode = 'block-graph'))
    AND p.precision = CASE WHEN w.master = 'ao' THEN o.precision || '-ao' WHEN w.master IS NOT NULL
    THEN iif(o.precision = 'bf16', w.master, NULL) ELSE iif(o.precision = 'bf16-pure', 'bf16pure', o.precision) END
WHERE o.status = 'ok' AND p.step_ms > 0 AND o.mode = 'train-step' AND o.recompute = 'none' AND o.variant = 'graph'
    AND coalesce(o.cold, 0) = 0 AND o.warmup = 5 AND coalesce(o.offload, 'none') = 'none'
    AND coalesce(o.moments, 'policy') = 'policy' AND coalesce(o.micro_batches, 1) = 1 AND coalesce(o.clip, 0) = 0
    AND o.attention = 'flash' AND coalesce(o.fp32_products, 'fma') IN ('fma', 'fp16x3')
    AND coalesce(o.custom, 0) = 0 ORDER BY o.id

-- PyTorch updates as many fp32 parameters as it likes: rates are compared, with our update of the nearest number.
@view updates
SELECT 1e3 * o.opt_tb_s / p.gb_s AS ratio, p.p10_ms / p.median_ms * o.opt_alone_ms / o.opt_alone_p90_ms AS low,
    p.p90_ms / p.median_ms * o.opt_alone_ms / o.opt_alone_p10_ms AS high, p.impl, p.params AS their_params,
    p.gpu_uuid AS their_gpu, p.run_id AS their_run, o.*,
    row_number() OVER (PARTITION BY p.id ORDER BY abs(o.params - p.params), o.id) AS nth
FROM peer_adamw p
JOIN default_steps o ON o.precision = 'fp32' AND o.opt_tb_s IS NOT NULL AND o.status = 'ok'

@into pairs
SELECT 'AdamW, fp32, by bytes per second', NULL, 'PyTorch ' || impl, n(params / 1e6) || ' million parameters, theirs '
    || n(their_params / 1e6) || ' million', ratio, ratio * low, ratio * high, 'bench_transformer', id, NULL, their_gpu,
    gpu_uuid, their_run, coalesce(campaign, run_id), NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL
FROM updates
WHERE nth = 1

-- ---- all-reduce, from CUDA graphs ----
-- A call of the host has its launch in its time, which Python makes longer than C does. NCCL stands beside NCCL; our
-- own algorithms stand beside whatever the peer's NCCL chose.
@view others_allreduce
SELECT 'PyTorch' AS peer, id, ranks, bytes, mode, 1 AS in_place, median_ms, least_ms, most_ms, gpu_uuid, run_id,
    0 AS wrong
FROM peer_allreduce
WHERE backend = 'nccl'
UNION ALL SELECT 'nccl-tests' || iif(policy GLOB 'a process*', ', a process for each GPU', '')
    || iif(policy GLOB '*registered*', ', registered buffers', ''), id, ranks, bytes, mode, in_place, median_us / 1e3,
    least_us / 1e3, most_us / 1e3, gpu_uuid, run_id, wrong
FROM peer_nccl_tests
WHERE median_us IS NOT NULL

@view our_allreduce
SELECT *, variant <> 'all-reduce' AS own, row_number() OVER (PARTITION BY ranks, bytes, in_place, variant = 'all-reduce'
    ORDER BY median_ms, id) AS nth
FROM bench_allreduce
WHERE status = 'ok' AND mode = 'graph' AND dtype = 'fp32' AND variant IN ('all-reduce', 'one-shot', 'two-shot')

@into pairs
SELECT 'all-reduce on ' || o.ranks || ' GPUs' || iif(o.own, ', any algorithm', ''), iif(o.own, NULL, 'NCCL'), p.peer,
    o.size || iif(o.in_place, '', ', not in place'), p.median_ms / o.median_ms, p.least_ms / o.max_ms,
    p.most_ms / o.min_ms, 'bench_allreduce', o.id, NULL, p.gpu_uuid, o.gpu_uuid, p.run_id,
    coalesce(o.campaign, o.run_id), 'graph', 'graph', NULL, NULL,
    iif(p.wrong > 0, 'the peer''s result is wrong', NULL), 0, NULL, NULL
FROM our_allreduce o
JOIN others_allreduce p ON p.ranks = o.ranks AND p.bytes = o.bytes AND p.mode = o.mode AND p.in_place = o.in_place
WHERE o.nth = 1 ORDER BY o.bytes, p.peer

-- ---- attention over ranks: whatever way is ours fastest, against each of theirs ----
@view our_cp
SELECT *, iif(heads_kv > 0, heads_kv, heads) AS kv, fwd_ms + bwd_ms AS both_ms, row_number() OVER (PARTITION BY ranks,
    batch, heads, heads_kv, head_dim, seq, causal, dtype ORDER BY fwd_ms + bwd_ms, id) AS nth
FROM bench_cp
WHERE status = 'ok' AND deterministic = 0

@into pairs
SELECT 'attention over ' || o.ranks || ' GPUs, ' || o.dtype, NULL, CASE p.impl
    WHEN 'sdpa_cudnn' THEN 'cuDNN'
    ELSE 'FlashAttention-2' END || ', all-to-all', 'B ' || o.batch || ', H ' || o.heads
    || iif(o.kv <> o.heads, ' / ' || o.kv, '') || ', S ' || o.seq || ', D ' || o.head_dim
    || iif(o.causal, '', ', full'), (p.fwd_ms + p.bwd_ms) / o.both_ms, p.both_p10_ms / (o.fwd_p90_ms + o.bwd_p90_ms),
    p.both_p90_ms / (o.fwd_p10_ms + o.bwd_p10_ms), 'bench_cp', o.id, NULL, p.gpu_uuid, o.gpu_uuid, p.run_id,
    coalesce(o.campaign, o.run_id), 'calls', 'calls', NULL, NULL, CASE
    WHEN p.fwd_diff IS NULL THEN 'the peer''s result was not checked' WHEN p.fwd_diff > 2 * attention_bound(p.dtype, 0)
    OR p.bwd_diff > 2 * attention_bound(p.dtype, 1) THEN 'the peer''s result is wrong' END, 0, NULL, NULL
FROM our_cp o
JOIN peer_cp p ON p.ranks = o.ranks AND p.dtype = o.dtype AND p.batch = o.batch AND p.heads = o.heads
    AND p.heads_kv = o.kv AND p.seq = o.seq AND p.head_dim = o.head_dim AND p.causal = o.causal
WHERE o.nth = 1 AND p.fwd_ms IS NOT NULL ORDER BY o.id, p.id

-- ---- layers shared by GPUs: bf16 throughout on both sides ----
@view our_tp
SELECT *, row_number() OVER (PARTITION BY ranks, size, seq, batch ORDER BY step_ms, id) AS nth
FROM bench_tp
WHERE status = 'ok' AND precision = 'bf16-pure' AND recompute = 'none' AND micro_batches = 1 AND loss = 'parallel'
    AND moments IN ('policy', 'bf16') AND custom = 0 AND coalesce(mesh, 'tp') = 'tp' AND clip = 0

@into pairs
SELECT 'tensor-parallel step on ' || o.ranks || ' GPUs, bf16-pure', NULL, 'PyTorch DTensor, ' || p.mode,
    o.size || ', batch ' || o.batch || ', S ' || o.seq, p.step_ms / o.step_ms, p.step_p10_ms / o.step_p90_ms,
    p.step_p90_ms / o.step_p10_ms, 'bench_tp', o.id, NULL,
    p.gpu_uuid, o.gpu_uuid, p.run_id, coalesce(o.campaign, o.run_id), NULL, NULL, NULL, NULL,
    iif(p.loss IN ('nan', 'inf', '-inf'), 'the peer''s result is wrong', NULL), 1, p.gpu_busy_pct, p.mfu_pct
FROM our_tp o
JOIN peer_tp p ON p.ranks = o.ranks AND p.size = o.size AND p.seq = o.seq AND p.batch = o.batch
WHERE o.nth = 1 AND p.step_ms IS NOT NULL ORDER BY o.id, p.id

-- ---- stages of a pipeline: the same schedule, and whatever is fastest against whatever is ----
@view our_pp
SELECT *, row_number() OVER (PARTITION BY ranks, size, seq, batch, micro_batches, precision, variant
    ORDER BY step_ms, id) AS nth, row_number() OVER (PARTITION BY ranks, size, seq, batch, micro_batches, precision
    ORDER BY step_ms, id) = 1 AS fastest
FROM bench_pp
WHERE status = 'ok' AND step_ms IS NOT NULL AND clip = 0 AND custom = 0 AND coalesce(mesh, 'pp') = 'pp'

@into pairs
SELECT 'pipeline on ' || o.ranks || ' GPUs, ' || o.precision || iif(o.variant = p.impl, ', ' || o.variant,
    ', any schedule'), NULL, 'PyTorch ' || p.impl || ', ' || p.mode,
    o.size || ', S ' || o.seq || ', ' || o.micro_batches
    || ' x ' || o.batch, p.step_ms / o.step_ms, p.step_p10_ms / o.step_p90_ms, p.step_p90_ms / o.step_p10_ms,
    'bench_pp', o.id, NULL, p.gpu_uuid, o.gpu_uuid, p.run_id,
    coalesce(o.campaign, o.run_id), NULL, NULL, NULL, NULL, CASE WHEN p.loss_diff IS NULL
    THEN 'the peer''s result was not checked' WHEN p.loss_diff > 0.01
    THEN 'the peer''s result is wrong' END, 1, p.gpu_busy_pct, p.mfu_pct
FROM our_pp o
JOIN peer_pp p ON p.ranks = o.ranks AND p.size = o.size AND p.seq = o.seq AND p.batch = o.batch
    AND p.micro_batches = o.micro_batches AND p.precision = o.precision AND (p.impl = o.variant OR o.fastest)
WHERE o.nth = 1 AND p.step_ms IS NOT NULL ORDER BY o.id, p.id

-- ---- steps of several GPUs ----
-- A model on each rank beside the same, a sharded optimizer beside the same, FSDP beside FSDP2: with remainders it
-- reduces in bf16 and repeats the MLPs.
@use ddp_rows

@view kinds
SELECT *, iif(variant GLOB 'zero1*' OR variant = 'fused', 'ZeRO-1 step', 'data-parallel step') AS kind FROM ddp
    WHERE status = 'ok'

@view fastest
SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY grp, kind ORDER BY step_ms, place) AS nth FROM kinds)
    WHERE nth = 1 AND custom = 0

@view ddp_pairs
SELECT o.kind || ', ' || o.precision AS work, p.*, o.title AS place, o.step_ms AS our_ms, o.bench_table, o.id AS our_id,
    o.gpu_uuid AS our_gpu, coalesce(o.campaign, o.run_id) AS our_run, o.step_p5_ms AS our_p5, o.step_p95_ms AS our_p95,
    o.loss_third AS our_loss, o.place AS nth_
FROM fastest o
JOIN peer_ddp p ON p.strategy NOT GLOB 'fsdp*' AND (p.strategy GLOB 'zero1*') = (o.kind = 'ZeRO-1 step')
    AND p.ranks = o.ranks AND p.size = o.size AND p.seq = o.seq AND p.batch_per_rank = o.batch
    AND p.precision = iif(o.precision = 'bf16-pure', 'bf16pure', o.precision)
    AND o.wire = iif(p.precision = 'bf16pure', 'bf16', 'fp32')
UNION ALL SELECT iif(p.strategy = 'fsdp2-keep', 'FSDP step with parameters kept', 'FSDP step') || ', sums in '
    || o.wire_dtype || iif(o.precision = 'bf16', '', ', ' || o.precision), p.*, o.size || ', batch ' || o.batch
    || ' per rank, S ' || o.seq || ', ' || o.precision || ', ' || o.ranks || ' ranks'
    || iif(o.recompute = 'none', '', ', recompute ' || o.recompute), o.step_ms,
    'bench_fsdp', o.id, o.gpu_uuid, coalesce(o.campaign, o.run_id), o.step_p5_ms, o.step_p95_ms, o.loss_third,
    1000 + o.id
FROM peer_ddp p
JOIN bench_fsdp o ON o.id = (SELECT id FROM bench_fsdp f WHERE f.status = 'ok'
    AND f.wire_dtype = iif(p.strategy = 'fsdp2-rest', 'bf16', 'fp32')
    AND f.precision = replace(p.precision, '-ao', '') AND coalesce(f.gathered_dtype, '') <> 'e4m3'
    AND f.recompute = iif(p.strategy = 'fsdp2-rest', 'mlp', 'none') AND coalesce(f.moments, 'policy') = 'policy'
    AND coalesce(f.offload, 'none') = 'none' AND coalesce(f.micro_batches, 1) = 1 AND coalesce(f.clip, 0) = 0
    AND f.ranks = p.ranks AND f.size = p.size AND f.seq = p.seq AND f.batch = p.batch_per_rank
    AND f.variant IN (iif(p.strategy = 'fsdp2-keep', 'fsdp-keep', 'fsdp'),
    iif(p.strategy = 'fsdp2-keep', 'zero2', 'fsdp'))
    ORDER BY f.step_ms LIMIT 1)
WHERE p.strategy GLOB 'fsdp2*'

@into pairs
SELECT work, NULL, 'PyTorch ' || strategy || ', ' || mode || ', ' || precision
    || coalesce(' (loss ' || n4(loss_third) || ', ours ' || n4(our_loss) || ')', ''), place, step_ms / our_ms,
    step_p10_ms / our_p95, step_p90_ms / our_p5, bench_table, our_id, NULL, gpu_uuid, our_gpu, run_id, our_run, NULL,
    NULL, NULL, NULL, CASE WHEN loss IN ('nan', 'inf', '-inf') THEN 'the peer''s result is wrong'
    WHEN loss_third IS NOT NULL AND our_loss IS NULL THEN 'our row has no third loss to compare'
    WHEN abs(loss_third - our_loss) > iif(precision GLOB '*32', 0.005, 0.02) * our_loss
    THEN 'the peer''s losses differ from ours' END, 1,
    coalesce(gpu_busy_pct, iif(mode GLOB '*-graph', 100, NULL)), mfu_pct
FROM ddp_pairs
WHERE step_ms IS NOT NULL ORDER BY nth_, id

-- ---- what a save adds to a step: ours of async, lazy and device stand beside their best ----
@into pairs
SELECT iif(o.variant = 'sync', 'stall of a blocking save', 'stall of an asynchronous save'), NULL, 'PyTorch, ' || p.way,
    o.variant || ', ' || o.size || ', batch ' || o.batch || ', S ' || o.seq || ', ' || o.ranks
    || iif(o.ranks = 1, ' GPU', ' GPUs'), p.stall_ms / o.stall_ms, p.stall_min_ms / o.stall_max_ms,
    p.stall_max_ms / iif(o.stall_min_ms > 0, o.stall_min_ms, NULL),
    'bench_checkpoint', o.id, NULL, p.gpu_uuid, o.gpu_uuid, p.run_id, coalesce(o.campaign, o.run_id), NULL, NULL, NULL,
    NULL,
    iif(abs(p.state_bytes - o.state_bytes) > 0.02 * o.state_bytes, 'the peer saved another number of bytes',
    NULL), 0, NULL, NULL
FROM bench_checkpoint o
JOIN peer_checkpoint p ON p.ranks = o.ranks AND p.size = o.size AND p.seq = o.seq AND p.batch_per_rank = o.batch
    AND p.precision = o.precision AND p.fs = o.fs
    AND p.way = iif(o.variant = 'sync', 'blocking', 'async-pinned')
WHERE o.status = 'ok' AND o.stall_ms > 0 AND p.stall_ms > 0 AND o.strategy = iif(o.ranks = 1, 'ddp', 'fsdp')
    AND coalesce(o.moments, 'policy') = 'policy' AND o.io_used = 'buffered' ORDER BY o.id, p.id

-- ---- how many cases of the fixed lists ran ----
@into planned
SELECT 'on one GPU' AS what, iif(step_ms IS NOT NULL, json_array(size, seq, batch, precision, attn, mode, optimizer,
    policy), NULL) AS ran, planned AS cases FROM peer_model WHERE planned > 0
UNION ALL SELECT 'on several GPUs', iif(step_ms IS NOT NULL, json_array(strategy, ranks, size, seq, batch_per_rank,
    precision, attn, mode, timing, policy, bucket_mb), NULL), planned FROM peer_ddp WHERE planned > 0

-- ---- the rules: the first that holds says why there is no ratio ----
@into judged
SELECT *, rowid AS id, CASE
    WHEN coalesce(their_gpu, '') = '' OR coalesce(our_gpu, '') = '' OR coalesce(their_run, '') = ''
    OR coalesce(our_run, '') = '' THEN 'a row does not name its GPU and run'
    WHEN their_gpu <> our_gpu THEN 'the peer ran on another GPU'
    WHEN their_run <> our_run THEN 'the peer was measured in another run'
    WHEN their_timer <> our_timer THEN 'only one side was replayed from a CUDA graph'
    WHEN their_settling <> our_settling THEN 'only one side had settled before its samples'
    WHEN checked IS NOT NULL THEN checked
    WHEN is_step AND busy IS NULL THEN 'it is unknown how busy the peer''s GPU was'
    WHEN is_step AND busy < 80 THEN 'the peer was host-bound' END AS why
FROM pairs

-- The strongest peer of each case. With rounds, the same means that they lie on both sides of 1; else that the ratio is
-- within 2 %. A step's is said with the share of the peak that it reaches, and of the time in which its GPU works.
@into strongest
SELECT *, peer || printf(' %.2f', ratio) || iif(low IS NULL, '', printf(' [%.2f, %.2f]', low, high)) || ', ' || place
    || iif(their_mfu > 0, printf('; MFU %d %%, GPU busy %d %%', round(their_mfu), round(busy)), '') AS said, CASE
    WHEN coalesce(low, ratio - 0.02) > 1 THEN 'slower'
    WHEN coalesce(high, ratio + 0.02) < 1 THEN 'faster'
    ELSE 'same' END AS verdict
FROM (SELECT *, row_number() OVER (PARTITION BY work, place ORDER BY ratio, id) AS nth FROM judged WHERE why IS NULL)
WHERE nth = 1

-- Attention's pairs with the reason why a pass has no ratio.
@view attention_reasons
SELECT row_id, peer, max(iif(work GLOB '*, forward, *', why, NULL)) AS fwd_why,
    max(iif(work GLOB '*, backward, *', why, NULL)) AS bwd_why FROM judged WHERE table_ = 'peer_flash'
    GROUP BY row_id, peer

@into attention_pairs
SELECT a.*, r.fwd_why, r.bwd_why FROM flash_pairs a LEFT JOIN attention_reasons r ON r.row_id = a.our_id
    AND r.peer = a.peer
