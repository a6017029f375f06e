-- SPDX-License-Identifier: MIT
-- The rows of all benches as one table, `rows`.

@union rows bench_accounting bench_allreduce bench_attention bench_checkpoint bench_cp bench_ddp_bucketed
    bench_ddp_flat bench_ddp_naive bench_ddp_overlap bench_flash bench_fsdp bench_memory bench_mesh
    bench_mixed_precision bench_pp bench_qualify bench_recompute bench_roofline bench_run bench_tp bench_transformer
    bench_zero1 OF id options bench variant status reason throttle utc commit dirty machine gpu
