-- SPDX-License-Identifier: MIT
-- What the figures of data parallelism draw, as `ddp_drawn`: rows that went well of the size with the most rows, with
-- the ends of a step's parts.

@use ddp_rows

@view ddp_drawn
SELECT d.*, d.wire AS gradients, row_number() OVER (PARTITION BY d.grp ORDER BY d.place) AS bar,
    d.place = (SELECT b.place FROM best b WHERE b.grp = d.grp AND b.variant = d.variant) AS stands,
    coalesce(fwd_ms, 0) AS forward_end_ms, coalesce(fwd_ms, 0) + coalesce(bwd_ms, 0) AS backward_end_ms,
    coalesce(fwd_ms, 0) + coalesce(bwd_ms, 0) + coalesce(tail_ms, 0) AS tail_end_ms, coalesce(fwd_ms, 0)
    + coalesce(bwd_ms, 0) + coalesce(tail_ms, 0)
    + iif(tail_ms IS NULL, coalesce(after_ms, 0), coalesce(opt_ms, 0)) AS updates_end_ms,
    (SELECT min(j.ratio) * d.step_ms FROM judged j WHERE j.table_ = d.bench_table AND j.row_id = d.id
    AND j.why IS NULL) AS pytorch_step_ms
FROM ddp d
WHERE d.status = 'ok' AND d.size = (SELECT size FROM main_size)
