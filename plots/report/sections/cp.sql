-- SPDX-License-Identifier: MIT
@section 131 Sharing the sequence: attention over ranks
@of bench_cp

@view rows
SELECT *, 'H ' || heads || iif(heads_kv > 0, ' / ' || heads_kv, '') || ', D ' || head_dim || ', ' || dtype
    || iif(causal, '', ', full') || iif(batch > 1, ', B ' || batch, '') || iif(deterministic, ', deterministic', '') AS
    attention FROM bench_cp

@view ok
SELECT *, fwd_ms + bwd_ms AS both_ms, one_fwd_ms + one_bwd_ms AS one_ms FROM rows WHERE status = 'ok'

Each rank has a part of one sequence's tokens; keys, heads or blocks of keys move so that every query meets the keys
that it sees. One rank computes the whole sequence in the same run. A forward and backward of {seq} tokens
({attention}) takes it {one_ms} ms, and {ranks} ranks {both_ms} ms by {variant}: {speedup} times as fast. Moves by
themselves take {moves_ms} ms, of which {exposed_ms} ms are exposed.
@from ok WHERE ranks > 1 AND "order" = 'head-tail' ORDER BY ranks DESC, seq DESC, both_ms LIMIT 1

@figures cp

@table
SELECT status, variant, ranks AS "ranks:", attention, seq AS "S:",
    substr(iif("order" <> 'head-tail', ', ' || "order", '')
    || iif(variant <> 'ring', ', ' || counted(n_groups, 'group'), '')
    || iif(transport = 'copy', ', copies', ''), 3) AS "how?", fwd_ms AS "fwd ms:",
    bwd_ms AS "bwd ms:", speedup AS "times one rank:", efficiency_pct AS "efficiency %:", exposed_ms AS "exposed ms:",
    moved_bytes / gib() AS "moved GiB:", balance_pct AS "balance %:", predicted_ms AS "predicted ms:",
    err_pct AS "off by %:", rank_fwd_tflops AS "fwd TFLOP/s a rank:", rank_bwd_tflops AS "bwd TFLOP/s a rank:",
    100 * max(rank_fwd_tflops, rank_bwd_tflops) / most_tflops AS "of its most %?:", peak_bytes / gib() AS "GiB:",
    iif(whole_bits, 'same bits', n(err_o)) AS "o differs from one rank by"
FROM rows
WHERE status <> 'skip' ORDER BY id

{sum(status = 'ok')} of {count(*)} cases agree with the whole sequence on one rank;
{coalesce(sum(status = 'ok' AND whole_bits), 0)} have its bits in o, lse and dq[[; first to fail:
{max(iif(status = 'fail', reason, NULL))}]].
@from bench_cp WHERE "check" IS NOT 0 AND status IN ('ok', 'fail') HAVING count(*)

Time by contiguous chunks over that by head and tail, {a.variant} on {a.ranks} ranks, S {a.seq}:
{a.fwd_ms / b.fwd_ms} forward, {a.bwd_ms / b.bwd_ms} backward. Contiguous tokens leave most of a causal mask's work to
the last rank.
@from ok a JOIN ok b ON a."order" = 'contiguous' AND b."order" = 'head-tail' AND a.variant = b.variant
    AND json_remove(a.options, '$.order') = json_remove(b.options, '$.order') AND a.run_of = b.run_of
    WHERE a.causal AND a.variant <> 'all-to-all' ORDER BY a.ranks DESC, a.seq DESC, a.id LIMIT 1

Compared with PyTorch, an all-to-all over NCCL around its own attention: its time over ours
@from judged WHERE table_ = 'bench_cp' LIMIT 1

@table
SELECT peer, work, place AS "case", ratio AS "ratio:", coalesce(why, '') AS "no ratio, because?" FROM judged
    WHERE table_ = 'bench_cp' ORDER BY peer, id
