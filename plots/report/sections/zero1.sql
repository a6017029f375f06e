-- SPDX-License-Identifier: MIT
@section 120 ZeRO-1: sharded optimizer state
@of bench_zero1

@use ddp_rows

@view sharded
SELECT d.*, u.step_ms AS whole_ms, row_number() OVER (PARTITION BY d.grp, d.variant ORDER BY d.place) AS nth
FROM ddp d
LEFT JOIN ddp u ON u.grp = d.grp AND u.variant = 'unsharded' AND u.bucket_mb = d.bucket_mb AND u.how = d.how
    AND u.status = 'ok' AND u.run_of = d.run_of
WHERE d.bench_table = 'bench_zero1' AND d.status = 'ok'

`zero1` is the paper's: reduce-scatter of gradients, AdamW on a rank's slice, all-gather under the next forward.
`zero1-broadcast` is the handout's: all-reduce, AdamW on whole tensors, each broadcast by its owner. `unsharded` uses
the same buckets with the whole state on every rank. Memory is that of the rank that holds most, counted / predicted;
driver is what the driver has given out / what was planned.
@from (SELECT 1 FROM sharded LIMIT 1)

@figures zero1_

@table
SELECT size, ranks AS "ranks:", precision, wire AS gradients, variant AS way, bytes(param_bytes) AS "parameters:",
    bytes(grad_bytes) AS "gradients :", bytes(state_bytes) AS "state:", bytes(after_init_bytes) || ' / '
    || bytes(predicted_init_bytes) AS "after set-up:", bytes(before_step_bytes) || ' / '
    || bytes(predicted_before_bytes) AS "before an update:", bytes(after_step_bytes) || ' / '
    || bytes(predicted_after_bytes) AS "after one:", err_pct AS "off by %:", bytes(measured_after_step_bytes) || ' / '
    || bytes(peak_bytes) AS "driver / planned?:", err_measured_pct AS "off by % ?:",
    bytes(comm_bytes) AS "communicators?:"
FROM sharded
WHERE nth = 1 ORDER BY place

@table
SELECT ranks AS "ranks:", seq AS "S:", precision, wire AS gradients, label AS way, n4(step_ms) AS "step ms:",
    iif(variant = 'unsharded', NULL, n4(step_ms / whole_ms)) AS "of unsharded?:",
    range4(exposed_ms, exposed_lo_ms, exposed_hi_ms) AS "exposed ms [95 %]:", n4(comm_alone_ms) AS "alone ms:",
    hidden_pct AS "hidden %:", n4(opt_alone_ms) AS "AdamW alone ms:", bytes(wire_bytes) AS "a rank sends:",
    wire_gb_s AS "GB/s:", tokens_per_s AS "tokens/s:", bytes(peak_bytes) AS "peak:"
FROM sharded ORDER BY place
