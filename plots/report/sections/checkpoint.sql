-- SPDX-License-Identifier: MIT
@section 140 bench_checkpoint: saving a run's state
@of bench_checkpoint

A stall is what a save adds to the step behind it; the law says what it must be by the copy and storage rates of the
same run. Durable means synced and renamed, of all ranks together. Every row was loaded back bit for bit before it was
timed.

@figures checkpoint_

@view rows
SELECT *, size || ', batch ' || batch || ', S ' || seq || ', ' || precision
    || iif(moments = 'policy', '', ', moments ' || moments) || ', ' || fs || ', ' || io_used AS title
FROM bench_checkpoint WHERE status = 'ok' AND stall_ms IS NOT NULL

@each SELECT title, min(id) AS place FROM rows GROUP BY title ORDER BY place

### {:title}

@view here
SELECT * FROM rows WHERE title = :title

@table
SELECT strategy, ranks AS "ranks:", way, n4(step_ms) AS "step ms:", bytes(state_bytes) AS "state:",
    n4(stall_ms) AS "stall ms:", n4(law_ms) AS "by the law:", n4(stall_steps) AS "in steps:",
    n4(beside_pct) AS "steps beside % longer:", n4(durable_ms) AS "durable ms:", n4(durable_gb_s) AS "GB/s:",
    n4(durable_pct) AS "of storage %:", n4(durable_first_ms) AS "first ms:", n4(load_gb_s) AS "load GB/s:",
    cache AS "cache", n4(best_interval_s) AS "best interval s:", n4(best_cost_pct) AS "costs %:"
FROM here ORDER BY id

Ceilings of these runs, and what a save takes.

@table
SELECT strategy, ranks AS "ranks:", way, n4(down_gb_s) AS "to the host GB/s:", n4(up_gb_s) AS "back:",
    n4(within_gb_s) AS "within:", n4(write_gb_s) AS "storage:", n4(hash_gb_s) AS "hash, a thread:",
    bytes(host_bytes) AS "pinned:", bytes(device_bytes) AS "on the device:", n4(pin_s) AS "pinning s:",
    n4(pin_gb_s) AS "pinning GB/s:", resume
FROM here ORDER BY id

@end

### torch.distributed.checkpoint

As many bytes in fp32 (weights and two moments). Its files are not synced; on a tmpfs that costs nothing.
@from peer_checkpoint LIMIT 1

@table
SELECT way, ranks AS "ranks:", size, n4(step_ms) AS "step ms:", bytes(state_bytes) AS "state:",
    n4(stall_ms) AS "stall ms:", n4(stall_first_ms) AS "first ms:", n4(durable_ms) AS "until written ms:",
    n4(durable_gb_s) AS "GB/s:", note AS "note?"
FROM peer_checkpoint ORDER BY rowid
