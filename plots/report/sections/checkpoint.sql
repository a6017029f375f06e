-- SPDX-License-Identifier: MIT
@section 140 bench_checkpoint: saving a run's state
@of bench_checkpoint

A stall is what a save adds to the step after it; the law is what the copy and storage rates of the same run predict
for it. Durable means synced and renamed, for all ranks together. Every row was loaded back bit for bit before it was
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
    n4(call_ms) AS "call ms?:",
    n4(beside_pct) AS "steps meanwhile % longer:", n4(best_interval_s) AS "best interval s:",
    n4(best_cost_pct) AS "costs %:", resume
FROM here ORDER BY id

Saving until durable, and loading: the first save over later ones, the copy as a share of the link, the load as a share
of what reading and copying back allow.

@table
SELECT strategy, ranks AS "ranks:", way, n4(durable_ms) AS "durable ms:", n4(durable_gb_s) AS "GB/s:",
    n4(durable_pct) AS "of storage %:", n4(durable_first_ms / durable_ms) AS "first / later:",
    n4(iif(way IN ('async', 'lazy'), 100 * copied_gb_s / down_gb_s, NULL)) AS "copy of the link %?:",
    n4(load_gb_s) AS "load GB/s:",
    n4(load_pct) AS "of its ceiling %?:",
    iif(load_into = 'none', NULL, load_into || ', ' || iif(load_ranks, load_ranks, ranks)) AS "into?",
    n4(into_gb_s) AS "GB/s?:", n4(into_ratio) AS "slower by?:", cache AS "cache"
FROM here ORDER BY id

Ceilings of these runs, and what a way needs.

@table
SELECT strategy, ranks AS "ranks:", way, n4(down_gb_s) AS "to the host GB/s:", n4(up_gb_s) AS "back:",
    n4(within_gb_s) AS "within:", n4(write_gb_s) AS "storage, all ranks:", n4(read_gb_s) AS "reading, a rank?:",
    n4(verify_gb_s) AS "and hashing?:",
    n4(hash_gb_s) AS "hash, a thread:", bytes(host_bytes) AS "pinned:", bytes(device_bytes) AS "on the device:",
    n4(pin_s) AS "pinning s:", n4(pin_gb_s) AS "pinning GB/s:"
FROM here ORDER BY id

@end

### torch.distributed.checkpoint

PyTorch saves as many bytes, in fp32, and does not sync its files; on a tmpfs that costs nothing. Next to it
are our ways for the same model, batch and number of ranks, in the same run: a ratio is its stall over ours.
@from peer_checkpoint LIMIT 1

@view beside
SELECT p.*, o.way AS our_way, o.stall_ms AS our_ms, o.durable_ms AS our_durable_ms FROM peer_checkpoint p
LEFT JOIN rows o ON o.ranks = p.ranks AND o.size = p.size AND o.seq = p.seq AND o.batch = p.batch_per_rank
    AND o.fs = p.fs AND o.moments = 'policy' AND o.gpu_uuid = p.gpu_uuid AND coalesce(o.campaign, o.run_id) = p.run_id
    AND o.strategy = iif(p.ranks > 1, 'fsdp', 'ddp')

@table
SELECT way, ranks AS "ranks:", size, n4(step_ms) AS "step ms:", bytes(state_bytes) AS "state:",
    n4(stall_ms) AS "stall ms:", n4(stall_first_ms) AS "first ms:", n4(durable_ms) AS "until written ms:",
    n4(durable_gb_s) AS "GB/s:", our_way AS "ours?", n4(our_ms) AS "stall ms?:", n4(stall_ms / our_ms) AS "ratio?:",
    n4(durable_ms / our_durable_ms) AS "of written?:", note AS "note?"
FROM beside ORDER BY ranks, size_place(size), rowid, our_ms

### Goals of a save
@from (SELECT 1 FROM rows LIMIT 1)

@view asked
SELECT 1 AS place, 'device: stall, in steps' AS what, -1.0 AS bound, stall_steps AS value FROM rows WHERE way = 'device'
UNION ALL SELECT 2, 'lazy: stall over 1.1 times the law + 5 ms', -1, stall_ms / (1.1 * law_ms + 5)
    FROM rows WHERE way = 'lazy'
UNION ALL SELECT 3, 'a fifth of PyTorch''s stall, async-pinned: ratio of device', 5, stall_ms / our_ms FROM beside
    WHERE way = 'async-pinned' AND our_way = 'device'
UNION ALL SELECT 4, 'steps while writers work, % longer', -1, beside_pct FROM rows WHERE way <> 'sync'
UNION ALL SELECT 5, 'durable on tmpfs, GB/s', 8, durable_gb_s FROM rows WHERE fs = 'tmpfs'
UNION ALL SELECT 6, 'the same, % of plain files', 85, durable_pct FROM rows WHERE fs = 'tmpfs'
UNION ALL SELECT 7, 'durable on a disk, % of plain files', 90, durable_pct FROM rows WHERE fs <> 'tmpfs'
UNION ALL SELECT 8, 'copy to the host, % of the link', 90, 100 * copied_gb_s / down_gb_s
    FROM rows WHERE way IN ('async', 'lazy')
UNION ALL SELECT 9, 'first save over later ones', -1.3, durable_first_ms / durable_ms FROM rows
UNION ALL SELECT 10, 'load, % of the lower of reading and copying back', 80, load_pct
    FROM rows WHERE load_pct IS NOT NULL
UNION ALL SELECT 11, 'load into other ranks or strategy, time of a byte over the same', -1.15, into_ratio
    FROM rows WHERE into_ratio IS NOT NULL
UNION ALL SELECT 12, 'pinning, GB/s', 5, pin_gb_s FROM rows WHERE way IN ('async', 'lazy')

@table
SELECT what AS "asked", iif(bound < 0, 'at most ', 'at least ') || n4(abs(bound)) AS "bound",
    n4(median(value)) AS "median:", n4(min(value)) AS "least:", n4(max(value)) AS "most:",
    sum(iif(bound < 0, value <= -bound, value >= bound)) || ' of ' || count(*) AS "rows that keep it"
FROM asked WHERE value IS NOT NULL GROUP BY place ORDER BY place
