-- SPDX-License-Identifier: MIT
-- The problems of CS336's second assignment, by the handouts' names: one answer each, made of this machine's rows. The
-- tables are in the section that a name links to.
@section -5 The problems of CS336's second assignment

## The problems of CS336's second assignment

The answers to the handouts of 2025 and 2026, by problem name; docs/course.md has the commands. In report.html each name
links to its tables.

@use plain_steps

@problem benchmarking_script (2025, 2026): bench_transformer: a whole training step

Batch {batch}, context 512: a full step takes
{group_concat(n(step_ms) || ' ms (' || size || ', ' || precision || ')', ', ')}.
@from (SELECT * FROM plain_steps WHERE seq = 512 AND precision IN ('bf16', 'fp32') ORDER BY precision, size_place(size))
    HAVING count(*)

+ The deviation of a step is at most {max(100 * step_std_ms / step_mean_ms)} % of its mean.
@from plain_steps WHERE seq = 512 AND precision IN ('bf16', 'fp32') HAVING count(*)

+ With parts run one after another,
{group_concat(iif(size = most, size || ', ' || precision || ': forward ' || n(fwd_ms) || ', backward ' || n(bwd_ms)
|| coalesce(', AdamW alone ' || n(opt), '') || ' ms', NULL), '; ')}. The backward takes
{span(min(bwd_ms / fwd_ms), max(bwd_ms / fwd_ms))} times as long as the forward.
@from (SELECT *, (SELECT size FROM parts ORDER BY size = 'xl' DESC, size_place(size) DESC LIMIT 1) AS most
    FROM parts WHERE seq = 512 AND precision IN ('bf16', 'fp32') ORDER BY precision, size_place(size))
    HAVING count(*)

+ As in eager PyTorch, with the score matrix in memory ({code('--attention unfused --variant none')}), a step
takes {group_concat(n(step_ms) || ' ms (' || size || ', ' || precision || ')', ', ')}.
@from (SELECT * FROM dense_steps WHERE seq = 512 ORDER BY precision, size_place(size)) HAVING count(*)

+ For xl in fp32 others report, on their GPUs, {group_concat(said, ' and ')}.
@from (SELECT span(min(mean_ms), max(mean_ms)) || ' ms for a ' || mode AS said FROM published_model
    WHERE status = 'ok' AND repeat_of IS NULL AND compiled = 0 AND dtype = 'fp32' AND seq = 512 AND size = 'xl'
    AND "table" = 'benchmarking_script' AND mode IN ('forward', 'backward')
    AND EXISTS (SELECT 1 FROM plain_steps WHERE size = 'xl' AND seq = 512 AND precision = 'fp32')
    GROUP BY mode ORDER BY mode DESC) HAVING count(*)

+ Without warm-up the mean step takes {span(min(ratio), max(ratio))} times as long as after the longest warm-up.
@from warm_up WHERE warmup = 0 HAVING count(*)

+ After {counted(warmup, 'step')} it takes {span(min(ratio), max(ratio))} times as long.
@from warm_up WHERE warmup IN (1, 2) GROUP BY warmup ORDER BY warmup

@view profiled
SELECT *
FROM (SELECT *, row_number() OVER (PARTITION BY "case", measurement ORDER BY id DESC) AS nth,
    trim(substr("case", 6, instr("case", ' ') - 6)) AS size FROM profile_totals WHERE rank = 0
    AND bench = 'bench_transformer' AND measurement = 'steps')
WHERE nth = 1

@problem nsys_profile (2025, 2026): Profiles: where the time of a step goes

(a) The profiler and events agree on the same steps within {max(100 * abs(window_ms / recorded_event_ms - 1))} %; a
recorded step takes {span(min(recorded_event_ms / event_ms), max(recorded_event_ms / event_ms))} times as long as one
that is not recorded.
@from profiled WHERE recorded_event_ms > 0 AND event_ms > 0 HAVING count(*)

+ (b), (d) {p.size}: products are {p.gemm} % of the kernels' time in a forward and {s.gemm} % of a train step[[;
{code(k.name)} takes the most time ({counted(k.calls, 'call')}, {k.total_ms} ms)]].
@from (SELECT t.size, o.gemm_pct AS gemm, t.run_id, t."case" FROM profiled t JOIN profile_products o
    ON o."case" = t."case" AND o.run_id = t.run_id AND o.rank = 0 AND o.mode = 'forward' AND o.measurement = 'steps'
    WHERE t."case" LIKE '% mode=forward %') p
JOIN (SELECT t.size, o.gemm_pct AS gemm, t.run_id, t."case" FROM profiled t JOIN profile_products o
    ON o."case" = t."case" AND o.run_id = t.run_id AND o.rank = 0 AND o.mode = 'train-step'
    AND o.measurement = 'steps') s ON s.size = p.size
LEFT JOIN profile_kernels k ON k.id = (SELECT id FROM profile_kernels m WHERE m."case" = s."case"
    AND m.run_id = s.run_id AND m.rank = 0 AND m.measurement = 'steps'
    AND m.total_ms = (SELECT max(total_ms) FROM profile_kernels x WHERE x."case" = s."case" AND x.run_id = s.run_id
    AND x.rank = 0 AND x.measurement = 'steps') LIMIT 1)

+ (e) In unfused attention softmax takes {time_ratio} times the time of both products and {flop_ratio} times their
FLOPs: it is bound by the bytes it moves.
@from profile_softmax WHERE form = 'parts' AND rank = 0 AND pass = 'forward' ORDER BY scores_tflop DESC, id LIMIT 1

@problem mixed_precision_accumulation (2025, 2026): bench_mixed_precision: what low precision costs and gives

1000 times 0.01 is {group_concat(value || ' as ' || pair, ', ')}: the fp16 sum has the largest error, since it
rounds at every addition; an fp32 sum of fp16 numbers is off by what each lost when it was stored, and casting them
first changes nothing.
@from (SELECT * FROM bench_mixed_precision WHERE "sum" = '1000x0.01'
    AND pair IN ('fp32+fp32', 'fp16+fp16', 'fp32+fp16', 'fp32+fp16-cast') AND status = 'ok' ORDER BY id) HAVING count(*)

@problem benchmarking_mixed_precision (a) (2025, 2026): bench_mixed_precision: what low precision costs and gives

Under autocast to fp16, {group_concat(tensor || ' is ' || tensor_dtype, ', ')}.
@from (SELECT * FROM bench_mixed_precision WHERE dtype = 'fp16'
    AND tensor IN ('fc1.weight', 'fc1', 'ln', 'logits', 'loss', 'fc1.weight.grad') ORDER BY id) HAVING count(*)

@view norms
SELECT dtype, statistics, magnitude, err_rel, rows_overflowed FROM bench_mixed_precision WHERE norm = 'layer'
    AND status = 'ok' AND width = (SELECT max(width) FROM bench_mixed_precision WHERE norm = 'layer')

@problem benchmarking_mixed_precision (b) (2025, 2026): bench_mixed_precision: what low precision costs and gives

The sum of squares is the sensitive part. In fp16 it overflows at magnitude {printf('%.6g', magnitude)}, in
{rows_overflowed} rows.
@from norms WHERE dtype = 'fp16' AND statistics = 'own-sums' AND rows_overflowed > 0 ORDER BY magnitude DESC LIMIT 1

+ In bf16 it does not, but a sum in 16 bits makes the result {o.err_rel / f.err_rel} times less exact than one in fp32:
a norm's statistics stay in fp32 under bf16.
@from norms o JOIN norms f ON f.dtype = 'bf16' AND f.statistics = 'fp32' AND f.magnitude = 1 WHERE o.dtype = 'bf16'
    AND o.statistics = 'own-sums' AND o.magnitude = 1

@problem benchmarking_mixed_precision (c) (2025, 2026): bench_mixed_precision: what low precision costs and gives

A bf16 step is {span(min(speedup_step), max(speedup_step))} times as fast as one of fp32 with fused multiply-adds, its
forward {span(min(speedup_fwd), max(speedup_fwd))} times (small to 2.7b, context {max(seq)}).
@from bench_mixed_precision WHERE precision = 'bf16' AND status = 'ok' AND speedup_step IS NOT NULL HAVING count(*)

@view peaks
SELECT size, seq, max(peak_bytes) FILTER (WHERE precision = 'fp32' AND mode = 'forward') AS forward32,
    max(peak_bytes) FILTER (WHERE precision = 'fp32' AND mode = 'train-step') AS step32,
    max(peak_bytes) FILTER (WHERE precision = 'bf16' AND mode = 'forward') AS forward16,
    max(peak_bytes) FILTER (WHERE precision = 'bf16' AND mode = 'train-step') AS step16
FROM bench_memory
WHERE status = 'ok' AND recompute = 'none' AND attention = 'flash' GROUP BY size, seq ORDER BY size_place(size), seq

@problem memory_profiling (2025, 2026): bench_memory: where every byte goes

{group_concat(size || ', context ' || seq || ': forward ' || bytes(forward32) || ', full step ' || bytes(step32)
|| ' in fp32' || coalesce('; ' || bytes(forward16) || ' and ' || bytes(step16) || ' in bf16', ''), '. ')}.
@from (SELECT * FROM peaks WHERE step32 IS NOT NULL) HAVING count(*)

+ In bf16 a forward peaks at {span(min(100 * forward16 / forward32), max(100 * forward16 / forward32))} % of what it
takes in fp32, a full step at {span(min(100 * step16 / step32), max(100 * step16 / step32))} %, since AdamW's moments
take as much.
@from peaks HAVING count(step16 / step32)

+ With the score matrix in memory, as in eager PyTorch: {group_concat(said, '; ')}.
@from (SELECT size || ', batch ' || batch || ', context ' || seq || ', ' || precision || ', ' || mode || ' '
    || bytes(peak_bytes) AS said FROM bench_memory WHERE status = 'ok' AND attention = 'unfused' AND variant = 'none'
    AND recompute = 'none' ORDER BY size_place(size), seq, precision DESC, mode) HAVING count(*)

+ Others report for 2.7b, context 512, in fp32 {group_concat(said, ' and ')}.
@from (SELECT span(min(peak_gib), max(peak_gib)) || ' GiB for a ' || iif(mode = 'forward', mode, 'full step') AS said
    FROM published_memory WHERE status = 'ok' AND lower(size) = '2.7b' AND seq = 512 AND dtype = 'fp32'
    AND mode IN ('forward', 'train_step') AND EXISTS (SELECT 1 FROM peaks WHERE size = '2.7b' AND seq = 512)
    GROUP BY mode ORDER BY mode) HAVING count(*)

+ The residual stream of {size}, context {seq}, in {precision}, is {bytes(residual_bytes)}, and the largest allocation
{code(largest)}, {bytes(largest_bytes)}.
@from bench_memory WHERE status = 'ok' AND mode = 'train-step' AND recompute = 'none' AND attention = 'flash'
    ORDER BY size_place(size),
    seq DESC, precision = 'fp32' DESC LIMIT 1

@view ways
SELECT * FROM bench_recompute WHERE status = 'ok'
    AND size = (SELECT size FROM bench_recompute GROUP BY size ORDER BY size = 'xl-2026' DESC, min(id) LIMIT 1)

@problem gradient_checkpointing (2026): bench_recompute: recomputed activations

{o.size}, batch {o.batch}, context {o.seq}, {o.precision}: (a) nested, a step peaks at {bytes(n.peak_bytes)} instead of
{bytes(o.peak_bytes)} and takes {n.extra_pct} % more time. (b) The best group has {counted(b.group_used, 'block')}, at
{bytes(b.peak_bytes)} and {b.extra_pct} % more time[[; the next larger one, of {l.group_used}, takes
{100 * (l.peak_bytes / b.peak_bytes - 1)} % more]].
@from ways o JOIN ways n ON n.variant = 'nested' JOIN ways b ON b.variant = 'group-best' LEFT JOIN ways l
    ON l.variant = 'group-larger' WHERE o.variant = 'none'

@problem pytorch_attention (2025, 2026): bench_attention: what unfused attention costs

{dtype}, D {head_dim}, S {seq}: forward {fwd_ms} ms, backward {bwd_ms} ms, {bytes(mem_before_bwd_bytes)} held before the
backward, which grows with the square of S.
{(SELECT sum(status = 'oom') FROM bench_attention WHERE variant = 'unfused')} of
{(SELECT count(*) FROM bench_attention WHERE variant = 'unfused')} cases are out of memory.
@from bench_attention WHERE variant = 'unfused' AND status = 'ok' ORDER BY seq DESC, head_dim DESC, id LIMIT 1

@problem torch_compile (a) (2025, 2026): bench_attention: what unfused attention costs

Fused attention is {span(min(u.fwd_ms / f.fwd_ms), max(u.fwd_ms / f.fwd_ms))} times as fast as unfused in the forward
and {span(min(u.bwd_ms / f.bwd_ms), max(u.bwd_ms / f.bwd_ms))} times in the backward.
@from bench_attention u JOIN bench_attention f ON f.variant = 'fused' AND f.options = u.options AND f.run_of = u.run_of
    WHERE u.variant = 'unfused' AND u.status = 'ok' AND f.status = 'ok' HAVING count(*)

@problem torch_compile (b) (2025, 2026): bench_transformer: a whole training step

With fused kernels in one graph a full step is {span(min(ratio), max(ratio))} times as fast as op by op.
@from (SELECT n.step_ms / g.step_ms AS ratio FROM bench_transformer n JOIN bench_transformer g ON g.options = n.options
    AND g.variant = 'graph' AND g.run_of = n.run_of AND g.status = 'ok' WHERE n.variant = 'none' AND n.status = 'ok'
    AND n.mode = 'train-step' AND n.attention = 'flash') HAVING count(*)

@problem flash_forward (2025, 2026): bench_flash: FlashAttention against unfused attention

{CASE WHEN sum(status = 'fail') THEN sum(status = 'ok') || ' of ' || count(*) || ' cases agree' WHEN count(*) = 1
THEN 'The only case agrees' ELSE 'All ' || count(*) || ' cases agree' END} with attention in fp64; the largest relative
L2 error of o is
{(SELECT group_concat(dtype || ' ' || n(e), ', ') FROM (SELECT dtype, max(err_fwd) AS e FROM bench_flash
WHERE variant = 'flash' AND status = 'ok' GROUP BY dtype))}.
@from bench_flash WHERE variant = 'flash' AND (status = 'fail' OR status = 'ok' AND err_fwd IS NOT NULL)
    HAVING sum(status = 'ok')

+ {counted(count(*), 'case')} failed: {max(reason)}
@from bench_flash WHERE variant = 'flash' AND status = 'fail' HAVING count(*)

@problem flash_backward (2025, 2026): bench_flash: FlashAttention against unfused attention

The largest error of dq, dk and dv is {group_concat(dtype || ' ' || n(q) || ', ' || n(k) || ', ' || n(v), '; ')}.
@from (SELECT dtype, max(err_dq) AS q, max(err_dk) AS k, max(err_dv) AS v FROM bench_flash WHERE variant = 'flash'
    AND status = 'ok' GROUP BY dtype) HAVING count(q)

@problem flash_benchmarking (2025, 2026): bench_flash: FlashAttention against unfused attention

In {dtype}, flash takes less time than unfused in {sum(speedup_fwd > 1)} of {count(speedup_fwd)} forwards
({span(min(speedup_fwd), max(speedup_fwd))} times as fast) and {sum(speedup_bwd > 1)} of {count(speedup_bwd)} backwards
({span(min(speedup_bwd), max(speedup_bwd))} times).
@from bench_flash WHERE variant = 'flash' AND status = 'ok' GROUP BY dtype HAVING count(speedup_fwd) ORDER BY min(id)

@view reduced
SELECT *, max(ranks) OVER () AS most FROM bench_allreduce WHERE variant = 'all-reduce' AND dtype = 'fp32'
    AND mode = 'eager' AND in_place AND status = 'ok' AND bytes IN (1e6, 1e7, 1e8, 1e9)

@problem distributed_communication_single_node (2025, 2026): bench_allreduce: collectives

{backend}, {ranks} ranks: {group_concat(size || ' takes ' || n(median_ms) || ' ms (' || n(busbw_gb_s)
|| ' GB/s on the bus)', ', ')}.
@from (SELECT * FROM reduced WHERE ranks = most ORDER BY bytes) HAVING count(*)

+ For {b.size} {b.ranks} ranks take {b.median_ms / a.median_ms} times as long as {a.ranks}, where a ring sends
{2.0 * (b.ranks - 1) / b.ranks / (2.0 * (a.ranks - 1) / a.ranks)} times as much per rank.
@from reduced a JOIN reduced b ON b.ranks = b.most AND b.bytes = a.bytes WHERE a.bytes = 1e9
    AND a.ranks = (SELECT min(ranks) FROM reduced) AND a.ranks < b.ranks

+ Others report for {ranks} ranks with NCCL {group_concat(said, ', ')}.
@from (SELECT ranks, span(min(mean_ms), max(mean_ms)) || ' ms for ' || n(size_mb) || ' MB' AS said
    FROM published_allreduce WHERE status = 'ok' AND backend = 'nccl' AND source <> 'answers_b' AND size_mb IN (1, 100)
    AND ranks = (SELECT min(ranks) FROM reduced WHERE backend LIKE 'nccl%') GROUP BY size_mb ORDER BY size_mb)
    HAVING count(*)

-- ---- several ranks ----
@use ddp_rows

@problem naive_ddp (2025, 2026): Data parallelism

@use verified ddp naive,naive-grouped

@problem naive_ddp_benchmarking (2025, 2026): Data parallelism

@use answer naive

{b.title}: of a step of {n4(step_ms)} ms, {range4(exposed_ms, exposed_lo_ms, exposed_hi_ms)} ms ({comm_pct} %) are
communication. Its {buckets} all-reduces follow the backward and take {n4(comm_alone_ms)} ms by themselves.
@from best b JOIN answer USING (grp) WHERE variant = 'naive'

@problem minimal_ddp_flat_benchmarking (2025, 2026): Data parallelism

@use answer naive,flat

{n.buckets} calls in a step become {f.buckets}; communication falls from
{range4(n.exposed_ms, n.exposed_lo_ms, n.exposed_hi_ms)} to {range4(f.exposed_ms, f.exposed_lo_ms, f.exposed_hi_ms)} ms,
the step from {n4(n.step_ms)} to {n4(f.step_ms)} ms.[[ Copying gradients together and back, as the handout does
(`flat-copy`), makes it {n4(c.step_ms)} ms.]]
@from answer a JOIN best n ON n.grp = a.grp AND n.variant = 'naive' JOIN best f ON f.grp = a.grp AND f.variant = 'flat'
    LEFT JOIN best c ON c.grp = a.grp AND c.variant = 'flat-copy'

@problem ddp_overlap_individual_parameters (2025, 2026): Data parallelism

@use verified ddp overlap

@problem ddp_overlap_individual_parameters_benchmarking (2025, 2026): Data parallelism

@use answer naive,flat,overlap

Of {n4(o.comm_alone_ms)} ms that the calls take by themselves, `overlap` exposes
{range4(o.exposed_ms, o.exposed_lo_ms, o.exposed_hi_ms)} ms[[: {n4(o.tail_ms)} ms in which compute waits after the
backward, the rest by slowing compute down]]. Its step takes {n4(o.step_ms)} ms, that of `flat`
{n4(f.step_ms)} and that of `naive` {n4(n.step_ms)} ms.
@from answer a JOIN best o ON o.grp = a.grp AND o.variant = 'overlap' JOIN best f ON f.grp = a.grp
    AND f.variant = 'flat' JOIN best n ON n.grp = a.grp AND n.variant = 'naive'

@problem ddp_overlap_bucketed (2025): Data parallelism

@use verified ddp bucketed

@view sizes
SELECT * FROM ddp
WHERE variant = 'bucketed' AND how = '' AND status = 'ok'
    AND grp = (SELECT grp FROM ddp WHERE variant = 'bucketed' AND how = '' AND status = 'ok' GROUP BY grp
    ORDER BY size = (SELECT size FROM main_size) DESC, count(*) DESC, precision = 'bf16' DESC, grp LIMIT 1)

@problem ddp_bucketed_benchmarking (a) (2025): Data parallelism

{title}: {(SELECT group_concat(l, ', ') FROM (SELECT printf('%.6g MB ', bucket_mb) || n4(step_ms) || ' ms' AS l
FROM sizes ORDER BY bucket_mb))}; {printf('%.6g', bucket_mb)} MB is best[[, where a call for each tensor takes
{n4(o.step_ms)} ms]].
@from (SELECT * FROM sizes ORDER BY step_ms LIMIT 1) s
    LEFT JOIN (SELECT grp, step_ms FROM best WHERE variant = 'overlap') o USING (grp)
    WHERE (SELECT count(*) FROM sizes) > 1

@problem ddp_bucketed_benchmarking (b) (2025): Data parallelism

With s bytes of gradients in n calls, a fixed cost o of a call and bandwidth w, the overhead over the backward is n o +
s / (n w), least with buckets of sqrt(s o w). This run's all-reduces say o = {o_us} us and w = {w_gb_s} GB/s, so
{predicted_best_mb} MB; measured best is {(SELECT printf('%.6g', bucket_mb) FROM sizes ORDER BY exposed_ms LIMIT 1)} MB.
@from sizes WHERE predicted_best_mb IS NOT NULL LIMIT 1

@problem optimizer_state_sharding (2025, 2026): ZeRO-1: sharded optimizer state

@use verified ddp zero1-broadcast,zero1

@use answer unsharded,zero1

@problem optimizer_state_sharding_accounting (a) (2025, 2026): ZeRO-1: sharded optimizer state

{u.title}: after set-up, before and after an update a rank holds {bytes(u.after_init_bytes)},
{bytes(u.before_step_bytes)} and {bytes(u.after_step_bytes)} unsharded, {bytes(z.after_init_bytes)},
{bytes(z.before_step_bytes)} and {bytes(z.after_step_bytes)} with ZeRO-1
({100 * (1 - z.after_step_bytes / u.after_step_bytes)} % less); the state is {bytes(u.state_bytes)} and
{bytes(z.state_bytes)} of it.
@from answer a JOIN best u ON u.grp = a.grp AND u.variant = 'unsharded' JOIN best z ON z.grp = a.grp
    AND z.variant = 'zero1'

@problem optimizer_state_sharding_accounting (b) (2025, 2026): ZeRO-1: sharded optimizer state

A step takes {n4(u.step_ms)} ms unsharded[[, {n4(b.step_ms)} ms in the handout's way (`zero1-broadcast`)]] and
{n4(z.step_ms)} ms in the paper's (`zero1`).
@from answer a JOIN best u ON u.grp = a.grp AND u.variant = 'unsharded' JOIN best z ON z.grp = a.grp
    AND z.variant = 'zero1' LEFT JOIN best b ON b.grp = a.grp AND b.variant = 'zero1-broadcast'

@problem optimizer_state_sharding_accounting (c) (2025, 2026): bench_accounting: memory and communication on paper

The handout's way sums all gradients on every rank, 2 P (n - 1)/n elements sent, and then broadcasts P (n - 1)/n updated
parameters. The paper's ZeRO-1 reduces each gradient to its owner and gathers the parameters: 2 P (n - 1)/n together. On
paper a rank of two sends {b.wire_bytes / 1e9} GB in fp32 in the handout's way and {z.wire_bytes / 1e9} GB in the
paper's ({b.model}).
@from bench_accounting b JOIN bench_accounting z ON z.variant = 'zero' AND z.strategy = 'zero1' AND z.recipe = b.recipe
    AND z.ranks = b.ranks AND z.model = b.model WHERE b.variant = 'zero' AND b.strategy = 'zero1-broadcast'
    AND b.recipe = 'fp32' AND b.ranks = 2 LIMIT 1

@view shards
SELECT *, size || ', S ' || seq || ', batch ' || batch || ' per rank, ' || ranks || ' ranks' AS title,
    recompute = 'none' AND "update" = 'buckets' AND coalesce("gather", 'nccl') = 'nccl'
    AND coalesce(reduce, 'nccl') = 'nccl'
    AND coalesce(small, 'sharded') = 'sharded' AND coalesce(reduce_dtype, 'grad') = 'grad' AND coalesce(prefetch, 1) = 1
    AND coalesce(micro_batches, 1) = 1 AS plain
FROM bench_fsdp
WHERE ranks > 1

@problem fsdp (2026): Sharded training: nothing is whole on any rank

@use verified shards fsdp

@problem fsdp_accounting (2026): Sharded training: nothing is whole on any rank

{f.title}, {f.precision}: `fsdp` holds {bytes(f.after_step_bytes)} between steps and {bytes(f.peak_bytes)} at the peak,
and a step takes {n4(f.step_ms)} ms, {n4(f.exposed_ms)} ms of it communication[[; `ddp` holds
{bytes(d.after_step_bytes)} and {bytes(d.peak_bytes)} and takes {n4(d.step_ms)} ms]][[, `zero1`
{bytes(z.after_step_bytes)}, {bytes(z.peak_bytes)} and {n4(z.step_ms)} ms]]. {bytes(f.gathered_bytes)} are gathered in a
step.
@from shards f
LEFT JOIN shards d ON d.variant = 'ddp' AND d.title = f.title AND d.precision = f.precision
    AND d.wire_dtype = f.wire_dtype AND d.status = 'ok'
LEFT JOIN shards z ON z.variant = 'zero1' AND z.title = f.title AND z.precision = f.precision
    AND z.wire_dtype = f.wire_dtype AND z.status = 'ok'
WHERE f.variant = 'fsdp' AND f.status = 'ok' AND f.precision = 'bf16' AND f.wire_dtype = 'fp32' AND f.plain
    ORDER BY d.id IS NULL, f.params DESC, f.id LIMIT 1

-- ---- on paper ----
@use paper

@problem communication_accounting (a) (2025): bench_accounting: memory and communication on paper

Master weights, gradients and AdamW's two moments of P = {printf('%d', parameters)} parameters in fp32 are 16 P =
{printf('%.2f', state_bytes / 1e9)} GB ({printf('%.1f', state_bytes / gib())} GiB), or {printf('%.2f', devices_exact)}
devices of 80 GB, so {devices}. For the backward a token leaves {printf('%.2f', saved_per_token_bytes / 1e6)} MB in
bf16; one more device holds those of {tokens_of_a_device} tokens.
@from paper WHERE variant = 'memory' AND device_memory = 8e10 AND tokens = 0

@problem communication_accounting (b) (2025): bench_accounting: memory and communication on paper

A device holds 16 P / N + A/2 (1 + 1/N), with A the activations of the batch. It stays below 95 GB
{(SELECT group_concat(iif(tokens = 0, 'without activations', 'with those of ' || tokens || ' tokens') || ' '
|| iif(devices IS NULL, 'for no N', 'from N = ' || devices || ' on'), '; ') FROM (SELECT * FROM paper
WHERE variant = 'fsdp' AND device_memory = 9.5e10 ORDER BY tokens))}. No N holds more than
{printf('%d', tokens_most)} tokens.
@from paper WHERE variant = 'fsdp' AND device_memory = 9.5e10 AND tokens = 0

@problem communication_accounting (c) (2025): bench_accounting: memory and communication on paper

A step is bound by compute where 4 B d F / (N C) > 4 d F / (Y W M_X) + 4 B d / (X W M_Y): with X = {x}, Y = {y}, M_X =
{mesh_x}, M_Y = {mesh_y}, C = {used_flops / 1e12} TFLOP/s and W = {used_bandwidth / 1e9} GB/s from a batch of
{printf('%.1f', tokens_least)} tokens on, **{printf('%.1f', tokens_per_device)} per device**.
@from paper WHERE variant = 'compute_bound' AND batch = 0 AND x = 16 AND y = 4 LIMIT 1

@problem communication_accounting (d) (2025): bench_accounting: memory and communication on paper

Ways to lower it: {group_concat(way || ' to ' || printf('%.1f', tokens_per_device), ', ')} tokens per device.
@from (SELECT * FROM paper WHERE variant = 'batch' AND of_given < 1 ORDER BY id) HAVING count(*)

@problem alternate_ring_all_reduce (2026): bench_accounting: memory and communication on paper

Each of N - 1 steps passes all S bytes on: (N - 1) S / W, against 2 (N - 1)/N S / W of a reduce-scatter with an
all-gather, which is N/2 times less. For the gradients of a block of d = {d_model}, F = {d_ff} that is
{alternate_us / 1e3} ms against {comm_us / 1e3} ms.
@from paper WHERE variant = 'closed_forms' AND form = 'all-reduce' AND batch = 0 LIMIT 1

@view forms
SELECT column1 AS problem, column2 AS form, column3 AS bound
FROM (VALUES
    ('data_parallel_calcs', 'data', 'N <= 1 + B rho'),
    ('fsdp_calcs', 'fsdp-forward', 'N <= 1 + B rho in the forward'),
    ('fsdp_calcs', 'fsdp-backward', 'and in the backward'),
    ('tp_calcs', 'tensor-forward', 'N <= 1 + 1.5 F rho in the forward'),
    ('tp_calcs', 'tensor-backward', 'N <= 1 + 3 F rho in the backward'),
    ('fsdp_tp_calcs', '2d-at-once', 'N <= (1 + B rho) (1 + 1.5 F rho) at once'),
    ('fsdp_tp_calcs', '2d-in-turn', 'N <= 3 F / (2 B) (B rho / 2 + 1/2 + B / (3 F))^2 in turn'))

@view formed
SELECT f.problem, f.rowid AS place, f.bound || ' ('
    || group_concat(n(p.devices_most) || ' at B ' || CAST(p.batch AS INTEGER), ', ') || ')' AS said
FROM forms f
JOIN (SELECT * FROM paper WHERE batch > 0 ORDER BY batch) p ON p.variant = 'closed_forms' AND p.form = f.form
    GROUP BY f.rowid

-- Beside the forms: F rho and B rho of the steps of bench_tp, and how much the way that hides most hides there.
@view shared
SELECT cut, strategy, d_ff * rho AS f, b * rho AS g, ' at d_ff ' || d_ff || ' and B ' || b || ', where '
    || counted(ranks, 'rank') || ' hide ' || n(max(hidden_pct)) || ' % of ' || n(alone_ms) || ' ms ('
    || code(variant) || ')' AS measured
FROM (SELECT *, coalesce(mesh, 'tp') AS cut, CAST(round(tokens_per_s * step_ms / 1e3) AS INTEGER) AS b FROM bench_tp
    WHERE status = 'ok' AND alone_ms > 0 AND EXISTS (SELECT 1 FROM formed)),
    (SELECT 1e-3 * (SELECT max(busbw_gb_s) FROM bench_allreduce WHERE status = 'ok') / max(tflops) AS rho
    FROM bench_roofline WHERE status = 'ok' AND variant GLOB 'gemm*' AND dtype = 'bf16')
WHERE rho > 0 GROUP BY cut, strategy, d_ff, b, ranks

@problem data_parallel_calcs (2026): bench_accounting: memory and communication on paper

With rho = W / C, a step is bound by compute where {group_concat(said, ', ')}.
@from (SELECT * FROM formed WHERE problem = 'data_parallel_calcs' ORDER BY place) HAVING count(*)

@problem fsdp_calcs (2026): bench_accounting: memory and communication on paper

{group_concat(said, ', ')}.
@from (SELECT * FROM formed WHERE problem = 'fsdp_calcs' ORDER BY place) HAVING count(*)

@problem tp_calcs (2026): bench_accounting: memory and communication on paper

{group_concat(said, ', ')}.
@from (SELECT * FROM formed WHERE problem = 'tp_calcs' ORDER BY place) HAVING count(*)

+ This machine's C and W allow, forward and backward,
{group_concat(n(1 + 1.5 * f) || ' and ' || n(1 + 3 * f) || measured, '; ')}.
@from (SELECT * FROM shared WHERE cut = 'tp') HAVING count(*)

@problem fsdp_tp_calcs (2026): bench_accounting: memory and communication on paper

Bound by compute, with collectives of both axes, where {group_concat(said, ', ')}.
@from (SELECT * FROM formed WHERE problem = 'fsdp_tp_calcs' ORDER BY place) HAVING count(*)

+ This machine's C and W allow, at once, {group_concat(n((1 + g) * (1 + 1.5 * f)) || measured, '; ')}.
@from (SELECT * FROM shared WHERE cut GLOB 'tp*+dp_shard*' AND strategy = 'fsdp') HAVING count(*)

@problem leaderboard (2025, 2026): bench_flash: FlashAttention against unfused attention

2025, 16 heads, D 64, S 16384, bf16, causal: forward and backward take {fwd_bwd_ms} ms; the forward alone takes
{fwd_ms} ms ({fwd_tflops} TFLOP/s), the backward {bwd_ms} ms ({bwd_tflops} TFLOP/s).
@from bench_flash WHERE variant = 'flash' AND status = 'ok' AND dtype = 'bf16' AND heads = 16 AND head_dim = 64
    AND seq = 16384 AND causal AND batch = 1 AND deterministic = 0 AND "window" < 0 AND heads_kv IN (0, 16) LIMIT 1

+ 2026, 8b, context 32768: a step takes {min(step_ms)} ms.
@from (SELECT step_ms FROM bench_transformer WHERE status = 'ok' AND size = '8b' AND seq = 32768 UNION ALL
    SELECT step_ms FROM bench_fsdp WHERE status = 'ok' AND size = '8b' AND seq = 32768) HAVING count(*)

@end

Not answered here, for lack of rows: {group_concat(name, ', ')}.
@from (SELECT DISTINCT name FROM unanswered) WHERE NOT (SELECT device = 'cpu' AND other FROM main_device)
    HAVING count(*)
