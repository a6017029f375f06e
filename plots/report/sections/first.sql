-- SPDX-License-Identifier: MIT
-- The first screen: what machine, and the same cases on every machine. A case that did not run is empty.
@section -20 First screen

@view run
SELECT run_id FROM machine ORDER BY id DESC LIMIT 1

@view facts
SELECT key, value FROM machine WHERE id IN (SELECT max(id) FROM machine WHERE run_id = (SELECT run_id FROM run)
    GROUP BY key)

@use rows

@into about
SELECT utc, "commit" AS version FROM rows

{substr(max(utc), 1, 10)}, stepbench
{(SELECT "commit" FROM rows ORDER BY utc DESC LIMIT 1)}[[{only(max(dirty) <> 0)} with uncommitted changes]][[,
driver {(SELECT value FROM facts WHERE key = 'driver')}, CUDA
{(SELECT value FROM facts WHERE key = 'cuda_runtime')}]][[, NCCL
{(SELECT value FROM facts WHERE key = 'nccl_library')}]]; {code(max(machine))}. Written by `build/report`; do not edit.
@from rows HAVING count(*)

+ The rows come from {count(DISTINCT "commit")} commits.
@from rows WHERE status = 'ok' HAVING count(DISTINCT "commit") > 1

+ {iif(sum(verdict = 'slow') + sum(verdict = 'fail'), 'Of the checks of bench_qualify, ' || sum(verdict = 'ok')
|| ' of ' || count(*) || ' passed.', 'Every GPU is as fast as it should be (' || counted(count(*), 'check')
|| ' of bench_qualify).')}
@from bench_qualify WHERE verdict IS NOT NULL HAVING count(*)

-- ---- the table ----
@use ddp_rows

@view usual_steps
SELECT * FROM default_steps
WHERE status = 'ok' AND mode = 'train-step' AND recompute = 'none' AND attention = 'flash' AND coalesce(cold, 0) = 0
    AND warmup = 5 AND coalesce(moments, 'policy') = 'policy' AND coalesce(offload, 'none') = 'none'
    AND coalesce(micro_batches, 1) = 1 AND coalesce(clip, 0) = 0 AND coalesce(loss_chunk, 0) = 0
    AND coalesce(custom, 0) = 0

-- Throughput is over all steps; columns are for the median step, which stands beside it.
@view steps
SELECT *, coalesce(step_ms / step_mean_ms, 1) AS mean_,
    coalesce(iif(step_mean_ms > 0, ', median step ' || n4(step_ms) || ' ms', ''), '') AS median_,
    row_number() OVER (PARTITION BY size, seq ORDER BY overlap <> 'auto', id DESC) = 1 AS chosen FROM usual_steps
WHERE variant = 'graph' AND precision = 'bf16' AND batch = 4

-- Llama 3 8B has the sequence of torchtitan's published table.
@view per_gpu
SELECT *, coalesce(step_ms / step_mean_ms, 1) AS mean_,
    coalesce(iif(step_mean_ms > 0, ', median step ' || n4(step_ms) || ' ms', ''), '') AS median_
FROM (SELECT 'bench_fsdp' AS table_, id, ranks, size, tokens_per_s, mfu_causal_pct, step_ms, step_mean_ms
    FROM bench_fsdp WHERE status = 'ok' AND precision = 'bf16' AND ranks > 1 AND variant IN ('fsdp', 'fsdp-keep')
    AND coalesce(custom, 0) = 0 AND (size = '2.7b' AND seq = 2048 AND batch = 2 AND recompute = 'none'
    OR size = 'llama3-8b' AND seq = 8192 AND batch = 1)
    UNION ALL SELECT 'bench_transformer', id, 1, size, tokens_per_s, mfu_causal_pct, step_ms, step_mean_ms
    FROM default_steps WHERE status = 'ok' AND precision = 'bf16' AND mode = 'train-step' AND variant = 'graph'
    AND size = 'llama3-8b' AND seq = 8192 AND batch = 1 AND coalesce(micro_batches, 1) = 1
    AND coalesce(clip, 0) = 0 AND coalesce(custom, 0) = 0)

@view attention
SELECT * FROM bench_flash WHERE status = 'ok' AND variant = 'flash' AND dtype = 'bf16' AND batch = 8 AND heads = 16
    AND heads_kv IN (0, 16) AND seq = 2048 AND coalesce(seq_k, 0) IN (0, 2048) AND head_dim = 128
    AND coalesce(head_dim_v, 0) IN (0, 128) AND causal AND deterministic = 0 AND "window" < 0 AND documents = 0
    ORDER BY id DESC LIMIT 1

@view all_reduces
SELECT *, bytes = 1024 AS small FROM bench_allreduce
WHERE status = 'ok' AND bytes IN (1024, 1073741824) AND dtype = 'fp32'
    AND variant IN ('all-reduce', 'one-shot', 'two-shot')
    AND ranks = (SELECT max(ranks) FROM bench_allreduce WHERE status = 'ok') ORDER BY median_ms

@view measured
SELECT 1 AS nth, n(tflops) || ' TFLOP/s' AS value, 100 * tflops / peak_tflops(gpu, 'bf16') AS share, '' AS more,
    'bench_roofline' AS table_, id AS row_id, 'matrix product, bf16%' AS like_, NULL AS where_
FROM (SELECT * FROM bench_roofline WHERE status = 'ok' AND variant GLOB 'gemm*' AND dtype = 'bf16' ORDER BY tflops DESC
    LIMIT 1)
UNION ALL SELECT * FROM (SELECT 2, n(gb_s) || ' GB/s', 100 * gb_s / peak_gb_s(gpu), '', 'bench_roofline', id, '%', NULL
FROM bench_roofline
WHERE status = 'ok' AND variant = 'copy_kernel' AND bytes = 1073741824 ORDER BY id DESC LIMIT 1)
UNION ALL SELECT 3, n(fwd_tflops) || ' TFLOP/s', fwd_ceiling_pct, '', 'peer_flash', NULL, 'attention, forward, bf16%',
    'B 8, H 16, S 2048, D 128'
FROM attention
UNION ALL SELECT 4, n(bwd_tflops) || ' TFLOP/s', bwd_ceiling_pct, '', 'peer_flash', NULL, 'attention, backward, bf16%',
    'B 8, H 16, S 2048, D 128'
FROM attention
UNION ALL SELECT 5, n(tokens_per_s * mean_) || ' tokens/s' || median_, mfu_causal_pct * mean_, 'MFU',
    'bench_transformer', id, '%', NULL
FROM steps
WHERE chosen AND size = 'xl' AND seq = 1024
UNION ALL SELECT 6, n(tokens_per_s * mean_) || ' tokens/s' || median_, mfu_causal_pct * mean_, 'MFU',
    'bench_transformer', id, '%', NULL
FROM steps
WHERE chosen AND size = '2.7b' AND seq = 2048
UNION ALL SELECT 7, n4(coalesce(step_mean_ms, step_ms)) || ' ms on ' || ranks
    || coalesce(iif(step_mean_ms > 0, ', median ' || n4(step_ms), ''), ''),
    100 - comm_pct, 'efficiency', bench_table, id, '%', NULL
FROM (SELECT * FROM ddp WHERE status = 'ok' AND size = 'xl' AND seq = 512 AND batch = 2 AND precision = 'bf16'
    AND ranks > 1 AND custom = 0 AND variant NOT GLOB 'zero1*' AND variant <> 'fused' ORDER BY ranks DESC, step_ms
    LIMIT 1)
UNION ALL SELECT * FROM (SELECT 8, n(tokens_per_s / ranks * mean_) || ' tokens/s per GPU' || median_,
    mfu_causal_pct * mean_, 'MFU', table_, id, '%', NULL FROM per_gpu WHERE size = '2.7b' ORDER BY ranks DESC, step_ms
    LIMIT 1)
UNION ALL SELECT *
FROM (SELECT 9, n(busbw_gb_s) || ' GB/s on ' || ranks, 100 * busbw_gb_s / (SELECT max(gb_s) FROM bench_roofline
    WHERE variant = 'p2p'), '', 'bench_allreduce', id, '%', NULL FROM all_reduces WHERE NOT small LIMIT 1)
UNION ALL SELECT *
FROM (SELECT 10, n(1e3 * median_ms) || ' us on ' || ranks, NULL, '', 'bench_allreduce', id, '%', NULL FROM all_reduces
    WHERE small LIMIT 1)
UNION ALL SELECT 11, n(1e3 / tokens_per_j) || ' mJ per token', NULL, '', '', NULL, '%', NULL
FROM steps
WHERE chosen AND size = 'xl' AND seq = 1024 AND tokens_per_j > 0
UNION ALL SELECT * FROM (SELECT 12, n(tokens_per_s / ranks * mean_) || ' tokens/s per GPU' || median_,
    mfu_causal_pct * mean_, 'MFU', table_, id, '%', NULL FROM per_gpu WHERE size = 'llama3-8b' ORDER BY ranks DESC,
    step_ms LIMIT 1)
-- What every run without a GPU has.
UNION ALL SELECT * FROM (SELECT 13, n(1e3 * tflops) || ' GFLOP/s', NULL, '', 'bench_roofline', id, '%', NULL
FROM bench_roofline
WHERE status = 'ok' AND device = 'cpu' AND variant GLOB 'gemm*' AND dtype = 'fp32' ORDER BY tflops DESC LIMIT 1)
UNION ALL SELECT * FROM (SELECT 14, n(gb_s) || ' GB/s', NULL, '', 'bench_roofline', id, '%', NULL
FROM bench_roofline
WHERE status = 'ok' AND device = 'cpu' AND variant = 'copy_kernel' AND bytes = 268435456 ORDER BY id DESC LIMIT 1)
UNION ALL SELECT * FROM (SELECT 15, n(tokens_per_s) || ' tokens/s', NULL, '', 'bench_transformer', id, '%', NULL
FROM usual_steps
WHERE device = 'cpu' AND variant = 'kernels' AND precision = 'fp32' AND size = 'tiny' AND seq = 32 AND batch = 2
    ORDER BY id DESC LIMIT 1)
UNION ALL SELECT * FROM (SELECT 16, n(busbw_gb_s) || ' GB/s on ' || ranks, NULL, '', 'bench_allreduce', id, '%', NULL
FROM bench_allreduce
WHERE status = 'ok' AND device = 'cpu' AND variant = 'all-reduce' AND bytes = 100000000 AND dtype = 'fp32' AND ranks = 2
    ORDER BY id DESC LIMIT 1)

-- How far several runs of these cases are apart, and how long one takes on a GPU that is busy for longer.
@view of_rows
SELECT m.nth, w.*, CASE m.nth WHEN 3 THEN 'fwd_ms' WHEN 4 THEN 'bwd_ms' END AS part
FROM measured m
LEFT JOIN attention a ON m.table_ = 'peer_flash'
JOIN rows w ON w.bench_table = iif(a.id, 'bench_flash', m.table_) AND w.id = coalesce(a.id, m.row_id)

@view again
SELECT nth, max(runs) AS runs, runs || printf(' runs within %.1f %%', 100 * (most - least) / middle) AS said
FROM of_rows w
JOIN repeats r USING (bench, variant, options) WHERE r.time = coalesce(part, r.time) GROUP BY nth

@view minutes
SELECT bench, variant, options, NULL AS part, sustain_s, sustained_step_ms / step_ms AS longer
FROM steady_bench_transformer
UNION ALL SELECT bench, variant, options, NULL, sustain_s, sustained_us / time_us FROM steady_bench_roofline
UNION ALL SELECT bench, variant, options, 'fwd_ms', sustain_s, sustained_fwd_ms / fwd_ms FROM steady_bench_flash
UNION ALL SELECT bench, variant, options, 'bwd_ms', sustain_s, sustained_bwd_ms / bwd_ms FROM steady_bench_flash

@view long
SELECT nth, printf('%.2f times as long when busy for %d s', longer, round(sustain_s)) AS said
FROM of_rows w
JOIN minutes s USING (bench, variant, options) WHERE s.part IS w.part AND longer > 0 GROUP BY nth

-- What the best product of a type is the best of; NULL for the four sizes.
@view products
SELECT dtype, CASE WHEN count(DISTINCT coalesce(mnk, size)) = 1
    THEN 'only one shape' WHEN sum(variant = 'gemm_best') > 0 OR dtype = 'fp32' THEN 'best of all shapes'
    WHEN count(DISTINCT size) <> 4 THEN 'best of ' || count(DISTINCT size) || ' sizes' END AS said
FROM bench_roofline WHERE status = 'ok' AND variant GLOB 'gemm*' AND dtype IN ('bf16', 'fp32') GROUP BY dtype

@into first
SELECT c.column1 AS nth, c.column2 AS what, coalesce(m.value, '') AS value,
    substr(m.value, 1, instr(m.value || ', median', ', median') - 1) AS brief,
    iif(m.share IS NULL, '', trim(m.more || printf(' %d %%', round(m.share)))) AS share,
    coalesce(p.peer || printf(' %.2f', p.ratio) || iif(p.low IS NULL, '', printf(' [%.2f, %.2f]', p.low, p.high)),
    r.peer || ': not compared, ' || substr(r.why, 1, instr(r.why || ':', ':') - 1), '') AS peer,
    coalesce(a.said || coalesce('; ' || l.said, ''), l.said) AS runs
FROM (VALUES
    (1, 'bf16 matrix product, '
    || coalesce((SELECT said FROM products WHERE dtype = 'bf16'), 'best of four sizes')),
    (2, 'copy of 1 GiB'),
    (3, 'attention forward, B 8 H 16 S 2048 D 128'),
    (4, 'attention backward, same shape'),
    (5, 'training step, xl S 1024 batch 4'),
    (6, 'training step, 2.7b S 2048 batch 4'),
    (7, 'data parallel, xl S 512 batch 2 per GPU'),
    (8, 'FSDP, 2.7b S 2048 batch 2 per GPU'),
    (9, 'all-reduce of 1 GiB, bus bandwidth'),
    (10, 'all-reduce of 1 KiB'),
    (11, 'energy of the xl step above'),
    (12, 'training step, Llama 3 8B, S 8192 batch 1 per GPU'),
    (13, 'fp32 matrix product on the CPU, '
    || coalesce((SELECT said FROM products WHERE dtype = 'fp32'), 'best of all shapes')),
    (14, 'copy of 256 MiB'),
    (15, 'training step, tiny S 32 batch 2, fp32'),
    (16, 'all-reduce of 100 MB, bus bandwidth')) c
LEFT JOIN measured m ON m.nth = c.column1
LEFT JOIN again a ON a.nth = m.nth
LEFT JOIN long l ON l.nth = m.nth
LEFT JOIN strongest p ON p.table_ = m.table_ AND p.work LIKE m.like_
    AND iif(m.where_ IS NULL, p.row_id = m.row_id, p.place = m.where_)
LEFT JOIN judged r ON r.why IS NOT NULL AND r.table_ = m.table_ AND r.work LIKE m.like_
    AND iif(m.where_ IS NULL, r.row_id = m.row_id, r.place = m.where_) GROUP BY c.column1 ORDER BY c.column1

-- Five of them on one line, which ./run_all.sh ends with.
@into last_line
SELECT group_concat(column2 || ' ' || brief || iif(nth = 5 AND share <> '', ' (' || share || ')', ''), ', ') AS said
FROM (SELECT * FROM first JOIN (VALUES (1, 'bf16'), (2, 'copy'), (5, 'xl'), (8, 'FSDP 2.7b'), (9, 'all-reduce'),
    (13, 'fp32'), (14, 'copy'), (15, 'tiny'), (16, 'all-reduce'))
    ON column1 = nth WHERE value <> '' ORDER BY nth)
WHERE NOT EXISTS (SELECT 1 FROM main_device WHERE other AND device = 'cpu')

-- None of these cases is of CPU ranks on a machine with GPUs; a machine without a GPU has cases of its own.
@view cases_stand
SELECT 1 FROM main_device WHERE device <> 'cpu' OR NOT other AND EXISTS (SELECT 1 FROM first WHERE value <> '')

@table
SELECT what AS "what (fixed cases)", value AS "value:", share AS "of its limit:",
    peer AS "strongest peer, its time over ours", runs AS "other runs?"
FROM first
WHERE EXISTS (SELECT 1 FROM cases_stand)
    AND (value <> '' OR nth <> 12 AND (nth > 12) = ((SELECT device FROM main_device) = 'cpu')) ORDER BY nth

Limits: the data sheet for products, copies and MFU; the best product measured, bursts included, for attention; the
measured copy between GPUs for all-reduce. The efficiency of a data-parallel step is the time that it would take
without communication over the time it takes. Brackets hold the smallest and the largest ratio of the rounds, or of
the steps. Throughput and MFU are means over all steps, and MFU counts the causal half of attention. Empty cells were
not measured.
@from cases_stand WHERE EXISTS (SELECT 1 FROM main_device WHERE device <> 'cpu')
    OR EXISTS (SELECT 1 FROM first WHERE share <> '')

None of the fixed cases of a first screen ran here.
@from main_device WHERE device = 'cpu' AND NOT other AND NOT EXISTS (SELECT 1 FROM cases_stand)

-- ---- at most ten lines ----
- Against the strongest peers, ours is faster in {counted(sum(verdict = 'slower'), 'case')}, as fast in
{sum(verdict = 'same')} and slower in {sum(verdict = 'faster')}.
@from strongest WHERE library IS NULL HAVING count(*)

+ The lowest ratio is {printf('%.2f', ratio)}: {peer}, {work}, {place}.
@from (SELECT * FROM strongest WHERE library IS NULL ORDER BY ratio, id LIMIT 1)

- The highest MFU of any step is {mfu_causal_pct} % ({case_name(bench, '', options)}: {tokens_per_s} tokens/s).
@from (SELECT * FROM bench_transformer WHERE status = 'ok' AND mode = 'train-step' AND precision = 'bf16'
    AND coalesce(custom, 0) = 0 ORDER BY mfu_causal_pct DESC, id LIMIT 1)
    WHERE mfu_causal_pct IS NOT NULL

- The largest step takes {bytes(peak_bytes)}[[ of
{bytes((SELECT CAST(value AS REAL) FROM facts WHERE key = 'gpu_memory_bytes'))}]] ({case_name(bench, '', options)}).
@from (SELECT * FROM bench_transformer WHERE status = 'ok' AND mode = 'train-step' ORDER BY peak_bytes DESC, id LIMIT 1)
    WHERE peak_bytes > gib()

- Communication takes {range4(exposed_ms, exposed_lo_ms, exposed_hi_ms)} ms of the fastest data-parallel step ({title}:
{label}, {n4(step_ms)} ms).
@from (SELECT * FROM ddp WHERE status = 'ok' AND exposed_ms IS NOT NULL AND precision = 'bf16' AND ranks > 1
    ORDER BY ranks DESC, params DESC, seq DESC, step_ms, place LIMIT 1)

- The fastest FSDP step of {model} takes {n4(step_ms)} ms and {bytes(peak_bytes)} ({variant}, {precision}, sums in
{wire_dtype}).
@from (SELECT *, size || ', S ' || seq || ', batch ' || batch || ' per rank on ' || ranks AS model FROM bench_fsdp
    WHERE status = 'ok' ORDER BY ranks DESC, params DESC, seq DESC, step_ms, id LIMIT 1)

- {sum(status = 'ok')} of {counted(count(*), 'case')} ran[[; out of memory: {nullif(sum(status = 'oom'), 0)}]][[; not
supported: {nullif(sum(status = 'skip'), 0)}]][[; failed: {nullif(sum(status = 'fail'), 0)}]].[[ Clocks were throttled
in {nullif(sum(throttle <> 'above_cap' AND status = 'ok'), 0)} of them.]][[ In {nullif(sum(instr(throttle, 'above_cap')
> 0 AND status = 'ok'), 0)}, power was above its limit: the GPU had not settled.]]
@from rows HAVING count(*)

- {code(path)}: {lost}.
@from files WHERE lost IS NOT NULL ORDER BY path

- Ranks on the CPU have {link('a page of their own', 'report-cpu.html')}.
@from main_device WHERE device = 'cuda' AND other

- Rows of the GPUs are in {link('report.html', 'report.html')}.
@from main_device WHERE device = 'cpu' AND other

@contents

@figures transformer_mfu

@figures peers_flash

@figures ddp_timeline.

## Compared with the strongest peers
@from (SELECT 1 FROM judged LIMIT 1)

A ratio is the peer's time over ours on the same GPU, in the same run, timed alike; below 1 the peer is faster.[[ Where
both sides call the same library, the ratio compares only the harnesses:
{(SELECT group_concat(l, '; ') FROM (SELECT library || ' ' || printf('%.2f to %.2f', min(ratio), max(ratio)) || ' ('
|| counted(count(*), 'case') || ')' AS l FROM strongest WHERE library IS NOT NULL GROUP BY library))}.]]
@from (SELECT 1 FROM judged LIMIT 1)

@table
SELECT work, sum(verdict = 'slower') || ' / ' || sum(verdict = 'same') || ' / '
    || sum(verdict = 'faster') AS "faster / same / slower:",
    iif(count(*) > 1, printf('%.2f to %.2f', min(ratio), max(ratio)), printf('%.2f', ratio)) AS "all ratios:",
    printf('%.2f', median(ratio)) AS "median:",
    (SELECT said FROM strongest w WHERE w.work = s.work AND library IS NULL ORDER BY ratio, id LIMIT 1)
    AS "the worst case"
FROM strongest s
WHERE library IS NULL GROUP BY work ORDER BY min(ratio)

Of the listed steps of PyTorch, {group_concat(ran || ' of ' || cases || ' ' || what, ' and ')} ran.
@from (SELECT what, count(ran) AS ran, max(cases) AS cases FROM planned GROUP BY what) HAVING count(*)

No ratio is formed where {group_concat(said, '; where ')}.
@from (SELECT why || ': ' || group_concat(work || ' (' || rows || ')', ', ') AS said
    FROM (SELECT why, work, count(*) AS rows FROM judged WHERE why IS NOT NULL GROUP BY 1, 2) GROUP BY why)
    HAVING count(*)
