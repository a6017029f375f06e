-- SPDX-License-Identifier: MIT
@section 130 Sharded training: nothing is whole on any rank
@of bench_fsdp

@figures fsdp

@view rows
SELECT *, param_bytes + state_bytes + grad_bytes AS held FROM bench_fsdp

@table
SELECT status, variant, size, seq AS "S:", batch AS "batch:", ranks AS "ranks:", prefetch AS "prefetch?:", precision,
    wire_dtype AS sums, "gather" AS gathers, coalesce(reduce, 'nccl') AS "reduced by",
    substr(iif(recompute <> 'none', ', recompute ' || recompute, '')
    || iif(coalesce(offload, 'none') <> 'none', ', offload ' || offload, '')
    || iif("update" <> 'buckets', ', update ' || "update", '')
    || iif(update_blocks > 0, ', update_blocks ' || update_blocks, '')
    || iif(coalesce(reduce_dtype, 'grad') <> 'grad', ', reduce_dtype ' || reduce_dtype, '')
    || iif(coalesce(small, 'sharded') <> 'sharded', ', small ' || small, '')
    || iif(coalesce(gathered_dtype, '') = 'e4m3', ', gathered as e4m3', '')
    || iif(micro_batches > 1, ', micro_batches ' || micro_batches, '') || iif(clip > 0, ', clip ' || clip, '')
    || iif(coalesce(moments, 'policy') <> 'policy', ', moments ' || moments, '')
    || iif(free_every > 1, ', free_every ' || free_every, '') || iif(replicas > 1, ', replicas ' || replicas, '')
    || iif(json_extract(options, '$.layers') > 0, ', layers ' || layers, ''), 3) AS "other options?",
    step_ms AS "step ms:",
    compute_ms AS "compute ms:", exposed_ms AS "exposed ms:", gather_wait_ms AS "waits for gathers ms:",
    tokens_per_s AS "tokens/s:", speedup_bf16 AS "times bf16?:", mfu_causal_pct AS "MFU %?:",
    iif(fp8_share_pct > 0, mfu_bf16_pct, NULL) AS "at bf16's peak?:", after_step_bytes / gib() AS "held GiB:",
    peak_bytes / gib() AS "peak GiB:", gathered_bytes / gib() AS "gathered GiB a step:"
FROM rows
WHERE status <> 'skip' ORDER BY id

@figures ranks_scaling

-- ---- weak and strong scaling: the same step on more ranks, by each rank's tokens a second ----
@view growing
SELECT *, json_remove(options, '$.ranks') || variant AS same,
    count(*) OVER (PARTITION BY json_remove(options, '$.ranks') || variant || run_of) AS n_,
    first_value(tokens_per_s / ranks) OVER (PARTITION BY json_remove(options, '$.ranks') || variant || run_of
    ORDER BY ranks) AS base
FROM bench_fsdp
WHERE status = 'ok'

### Weak scaling
@from (SELECT 1 FROM growing WHERE n_ > 1 LIMIT 1)

The batch per rank stays the same. In % of linear: tokens a second of each rank against those on the fewest ranks.
@from (SELECT 1 FROM growing WHERE n_ > 1 LIMIT 1)

@table
SELECT variant, case_name(bench, '', json_remove(options, '$.ranks')) AS "case", ranks AS "ranks:",
    step_ms AS "step ms:", tokens_per_s AS "tokens/s:", 100 * tokens_per_s / ranks / base AS "% of linear:",
    exposed_ms AS "exposed ms:"
FROM growing
WHERE n_ > 1 ORDER BY same, ranks

-- ---- another program on the same model ----
@view titan
SELECT * FROM peer_torchtitan WHERE size = 'llama3-8b' AND seq = 8192

@if (SELECT count(*) FROM titan)

### torchtitan on the same model

torchtitan starts from other values and tokens, so no ratio is formed; it keeps fp32 parameters where ours are bf16 with
16-bit remainders. Its selective checkpointing recomputes every second product and all that is cheaper, ours what
`recomputes` says.

@view beside
SELECT 1 AS place, id, 'stepbench' AS program, ranks, batch, precision, wire_dtype AS sums, recompute,
    step_ms, tokens_per_s / ranks AS tokens, mfu_bf16_pct AS mfu, peak_bytes / gib() AS gib, reason AS note
FROM bench_fsdp WHERE status = 'ok' AND size = 'llama3-8b' AND seq = 8192 AND heads_kv = 8 AND layers = 32
UNION ALL SELECT 2, id, substr(policy, 1, instr(policy, ',') - 1), ranks, batch_per_rank, precision, reduce,
    checkpointing, step_ms, tokens_per_s, mfu_pct, peak_gib, note FROM titan

@table
SELECT program, ranks AS "ranks:", batch AS "batch:", precision, sums, recompute AS recomputes,
    step_ms AS "step ms:", tokens AS "tokens/s per GPU:", mfu AS "MFU, causal, at bf16's peak %:", gib AS "GiB:",
    note AS "note?"
FROM beside ORDER BY ranks, precision GLOB 'fp8*', place, sums, id

@end
