-- SPDX-License-Identifier: MIT
-- Rows of bench_fsdp with the usual options, as `usual`: a variant that an option means nothing to has none.

@view usual
SELECT * FROM bench_fsdp
WHERE status = 'ok' AND mode = 'train-step' AND coalesce(prefetch, 1) = 1 AND coalesce(free_every, 1) = 1
    AND coalesce("gather", 'nccl') = 'nccl' AND coalesce(reduce, 'nccl') = 'nccl' AND coalesce(replicas, 2) IN (1, 2)
    AND coalesce(small, 'sharded') = 'sharded' AND coalesce(reduce_dtype, 'grad') = 'grad'
    AND coalesce(moments, 'policy') = 'policy' AND coalesce(offload, 'none') = 'none' AND "update" = 'buckets'
    AND update_blocks = 0 AND coalesce(micro_batches, 1) = 1 AND coalesce(clip, 0) = 0
    AND coalesce(custom, 0) = 0
