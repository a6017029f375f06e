-- SPDX-License-Identifier: MIT
@section 155 Which mesh?
@of bench_mesh

Predictions, not measurements: formulas with a table of rates, and a search of all meshes with every strategy, schedule,
micro-batch and recomputation. docs/mesh.md says what the five axes cost, docs/planner.md how to read this.

@figures mesh_best

### The fastest meshes that fit

Meshes closer to the best than the planner's error are a tie: take the one that is simplest to run, or needs least
memory.

@table
SELECT model, gpus AS "GPUs:", rank AS "place:", plan_mesh AS mesh, strategy,
    iif(plan_schedule = 'none', '', plan_schedule || iif(plan_chunks > 1, ' x' || plan_chunks, '')) AS schedule,
    micro_batch AS "micro-batch:", recompute, predicted_ms AS "step ms:", mfu_pct AS "MFU %:",
    total_bytes / gib() AS "GiB:", planned_bytes / gib() AS "planned GiB?",
    iif(tie, ties || iif(ties = 16, ' or more', ''), 'no') AS "tie of:"
FROM bench_mesh WHERE variant = 'best' AND status = 'ok' AND rank = 1 ORDER BY id

@if (SELECT count(*) FROM bench_mesh WHERE variant = 'best' AND status = 'ok' AND rank > 1)

@fold The places behind

@table
SELECT model, gpus AS "GPUs:", rank AS "place:", plan_mesh AS mesh, strategy,
    iif(plan_schedule = 'none', '', plan_schedule || iif(plan_chunks > 1, ' x' || plan_chunks, '')) AS schedule,
    micro_batch AS "micro-batch:", recompute, predicted_ms AS "step ms:", behind_pct AS "behind %:",
    total_bytes / gib() AS "GiB:", iif(tie, 'yes', 'no') AS tie
FROM bench_mesh WHERE variant = 'best' AND status = 'ok' AND rank > 1 ORDER BY id

@end

@end

@if (SELECT count(*) FROM bench_mesh WHERE variant = 'lacking' AND status = 'ok')

### What does not fit

If no mesh fits: the plan that lacks the fewest bytes.

@table
SELECT model, gpus AS "GPUs:", plan_mesh AS mesh, strategy, recompute, total_bytes / gib() AS "GiB:",
    lacks_bytes / gib() AS "GiB missing:"
FROM bench_mesh l WHERE variant = 'lacking' AND status = 'ok' AND rank = 1
    AND NOT EXISTS (SELECT 1 FROM bench_mesh b WHERE b.variant = 'best' AND b.status = 'ok'
        AND b.model = l.model AND b.gpus = l.gpus)
ORDER BY id

@end

@if (SELECT count(*) FROM bench_mesh WHERE variant = 'measured' AND status = 'ok')

### How far off is it on this machine?

Steps that other benches measured with their own checks, and what the planner says of them. Its rates are those of one
GPU, of products, attention and collectives; no step of several GPUs is among them. Memory is the plan of the step and
what its communicators take, against what the driver gave out. A tie is a mesh within the planner's error of its best.

{n(median_err_pct)} % is the median error and {n(worst_err_pct)} % the largest for {model} at S {seq}; the mesh with the
shortest prediction is {n(best_behind_pct)} % slower than the fastest one.
@from bench_mesh WHERE variant = 'measured' AND status = 'ok' ORDER BY judged DESC, id LIMIT 1

@table
SELECT model, seq AS "S:", global_batch AS "sequences:", precision,
    iif(recomputed = 'none', '', recomputed) AS "recomputed?", way, plan_mesh AS mesh,
    predicted_ms AS "predicted ms:", measured_ms AS "measured ms:", printf('%+.1f', err_pct) AS "error %:",
    place_predicted AS "predicted place:", place_measured AS "measured place:", iif(tie, 'yes', 'no') AS tie,
    judged AS "of:", planned_bytes / gib() AS "planned GiB:", driver_bytes / gib() AS "taken GiB:",
    printf('%+.2f', bytes_err_pct) AS "memory error %:"
FROM bench_mesh WHERE variant = 'measured' AND status = 'ok'
    ORDER BY model, seq, global_batch, precision, recomputed, place_measured

@end

@if (SELECT count(*) FROM bench_mesh WHERE variant = 'published' AND status = 'ok')

### How far off is the planner?

Runs that others published, predicted. The share of its peak that a machine reaches in products is fitted to one run of
each machine and width of products; all others are predicted. For those with cp below 4, {n(median_err_pct)} % is the
median error and {n(worst_err_pct)} % the largest.
@from bench_mesh WHERE variant = 'published' AND status = 'ok' ORDER BY id LIMIT 1

Runs whose sequences are split over 4 ranks and more took up to {n(1 + err_pct / 100)} times as long as predicted:
attention that is balanced, with hidden traffic, would be that much faster. No constant hides this.
@from bench_mesh WHERE variant = 'published' AND status = 'ok' AND cp >= 4 ORDER BY err_pct DESC LIMIT 1

@figures mesh_error

@fold All published runs

@table
SELECT source || iif(verified, '', ' (unverified)') AS source, published_model AS model,
    published_gpus AS "GPUs:", plan_mesh AS mesh,
    published_unit AS unit, reported AS "reported:", predicted AS "predicted:",
    iif(fitted, 'fit', printf('%+.1f', err_pct)) AS "error %:"
FROM bench_mesh WHERE variant = 'published' AND status = 'ok' ORDER BY id

@end

@end

@if (SELECT count(*) FROM bench_mesh WHERE variant = 'schedule' AND status = 'ok')

### Schedules of a pipeline

Simulated, with equal stages. Times of dx, dw and of a hop between stages are in forwards of a rank, which holds up
to the given number of micro-batches.

@figures pp_timeline

@table
SELECT schedule, stages AS "ranks:", plan_chunks AS "chunks:", micro_batches AS "micro-batches:",
    backward AS "dx:", weights AS "dw:", hop AS "hop:",
    printf('%.1f', schedule_bubble_pct) AS "bubble %:", in_flight AS "holds:"
FROM bench_mesh WHERE variant = 'schedule' AND status = 'ok'
    ORDER BY stages, micro_batches, instr('gpipe 1f1b interleaved zb-h1 zb-v', schedule), id
