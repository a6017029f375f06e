-- SPDX-License-Identifier: MIT
@section 100 bench_allreduce: collectives
@of bench_allreduce

Each sample is the time of the slowest rank. GB/s are 10^9 bytes per second at the median; those on the bus have the
factor of nccl-tests.

@figures allreduce_

@view ok
SELECT * FROM bench_allreduce WHERE status = 'ok'

@each SELECT variant, dtype, ranks, min(id) AS place FROM ok GROUP BY variant, dtype, ranks
    ORDER BY variant = 'all-reduce' DESC, place

### {:variant}, {:dtype}, {counted(:ranks, 'rank')}

@view here
SELECT * FROM ok WHERE variant = :variant AND dtype = :dtype AND ranks = :ranks

Called eagerly, {a.size} takes {iif(a.median_ms < 1, n(1e3 * a.median_ms) || ' us', n(a.median_ms) || ' ms')} and
{z.size} {iif(z.median_ms < 1, n(1e3 * z.median_ms) || ' us', n(z.median_ms) || ' ms')}; the bus reaches
{(SELECT max(busbw_gb_s) FROM here WHERE mode = 'eager')} GB/s at most.
@from (SELECT * FROM here WHERE mode = 'eager' ORDER BY bytes LIMIT 1) a
    JOIN (SELECT * FROM here WHERE mode = 'eager' ORDER BY bytes DESC LIMIT 1) z ON z.bytes > a.bytes

@grid
SELECT size AS "size:", mode || iif(in_place, ', in place', '') || ': ' || what || ':' AS across, cell
FROM ( SELECT bytes, size, mode, in_place, 1 AS nth, 'ms (mean ± std)' AS what, n(median_ms) || ' ('
    || pm(mean_ms, std_ms) || ')' AS cell FROM here UNION ALL SELECT bytes, size, mode, in_place, 2, 'GB/s', algbw_gb_s
    FROM here UNION ALL SELECT bytes, size, mode, in_place, 3, 'on the bus', busbw_gb_s FROM here) ORDER BY bytes, mode,
    in_place DESC, nth

@end

-- Replays of the library that ran under NCCL_LAUNCH_ORDER_IMPLICIT wait for a launch order that ours need not keep.
@view handicapped
SELECT id, variant FROM ok WHERE mode = 'graph' AND variant NOT GLOB '*-shot*'
    AND run_id IN (SELECT run_id FROM machine WHERE key = 'NCCL_LAUNCH_ORDER_IMPLICIT' AND value NOT IN ('', '0'))

Our own kernels, which store into the other GPUs' memory: the library's median over ours; above 1, ours is faster
@from ok WHERE variant IN ('one-shot', 'two-shot') LIMIT 1

@table
SELECT l.ranks AS "ranks:", l.dtype, l.size AS "size:", l.mode, iif(l.in_place, 'yes', 'no') AS "in place",
    1e3 * l.median_ms AS "library us:", 1e3 * a.median_ms AS "one-shot us:",
    iif(h.id, NULL, l.median_ms / a.median_ms) AS "times:", 1e3 * b.median_ms AS "two-shot us:",
    iif(h.id, NULL, l.median_ms / b.median_ms) AS "times :"
FROM ok l
LEFT JOIN ok a ON a.variant = 'one-shot' AND a.bytes = l.bytes AND a.dtype = l.dtype AND a.mode = l.mode
    AND a.in_place = l.in_place AND a.ranks = l.ranks AND a.run_of = l.run_of
LEFT JOIN ok b ON b.variant = 'two-shot' AND b.bytes = l.bytes AND b.dtype = l.dtype AND b.mode = l.mode
    AND b.in_place = l.in_place AND b.ranks = l.ranks AND b.run_of = l.run_of
LEFT JOIN handicapped h ON h.id = l.id
WHERE l.variant = 'all-reduce' AND (a.id OR b.id) ORDER BY l.ranks, l.dtype, l.bytes, l.mode, l.in_place DESC

Our all-gather and reduce-scatter compared with the library's, in the same way
@from ok WHERE variant GLOB 'one-shot-*' LIMIT 1

@table
SELECT l.variant AS op, l.ranks AS "ranks:", l.dtype, l.size AS "size:", l.mode,
    iif(l.in_place, 'yes', 'no') AS "in place", 1e3 * l.median_ms AS "library us:", 1e3 * a.median_ms AS "ours us:",
    iif(h.id, NULL, l.median_ms / a.median_ms) AS "times:"
FROM ok l
JOIN ok a ON a.variant = 'one-shot-' || l.variant AND a.bytes = l.bytes AND a.dtype = l.dtype AND a.mode = l.mode
    AND a.in_place = l.in_place AND a.ranks = l.ranks AND a.run_of = l.run_of
LEFT JOIN handicapped h ON h.id = l.id
ORDER BY l.variant, l.ranks, l.dtype, l.bytes, l.mode, l.in_place DESC

{count(*)} cases replayed from graphs are not compared: the library's ran with NCCL_LAUNCH_ORDER_IMPLICIT set, which
slows its replays.
@from handicapped WHERE variant = 'all-reduce'
    AND EXISTS (SELECT 1 FROM ok WHERE variant IN ('one-shot', 'two-shot')) HAVING count(*)

Compared with PyTorch and nccl-tests, from CUDA graphs: their time over ours
@from judged WHERE table_ = 'bench_allreduce' LIMIT 1

@table
SELECT peer, work, place AS "case", ratio AS "ratio:", coalesce(why, '') AS "no ratio, because?" FROM judged
    WHERE table_ = 'bench_allreduce' ORDER BY peer, id
