-- SPDX-License-Identifier: MIT
@section 128 Sharing a layer
@of bench_tp

Each rank has a part of every layer: some heads of attention, some columns of the feed-forward, some of the
vocabulary. The ranks work on the same tokens, so products get shorter, and so does the step, as far as sums and gathers
are hidden. *Nothing hidden* is one rank's step divided by the ranks, plus the time of all that is sent by itself: a
step below it hides some of that. docs/mesh.md says what is sent.

@figures tp

@table
SELECT status, variant AS way, size, seq AS "S:", batch AS "batch:", ranks AS "ranks:", precision,
    substr(iif(custom, ', ' || layers || ' layers, d_ff ' || d_ff, '')
    || iif(coalesce(mesh, 'tp') <> 'tp', ', ' || mesh || ', ' || strategy, '')
    || iif(clip > 0, ', clipped', '') || iif(overlap <> 'none', ', overlap ' || overlap, '')
    || iif(coalesce(regather, 1) = 0, ', rows kept', '') || iif(recompute <> 'none', ', recompute ' || recompute, '')
    || iif(micro_batches > 1, ', micro_batches ' || micro_batches, '')
    || iif(loss <> 'parallel', ', loss ' || loss, '') || iif(fusion <> 'kernels', ', ' || fusion, '')
    || iif(max_ctas > 0, ', max_ctas ' || max_ctas, ''), 3) AS "other options?",
    one_ms AS "one rank ms:", step_ms AS "step ms:", speedup AS "times as fast:", efficiency_pct AS "efficiency %:",
    compute_ms AS "compute ms:", exposed_ms AS "exposed ms:", alone_ms AS "sent alone ms:", hidden_pct AS "hidden %:",
    predicted_ms AS "nothing hidden ms:", err_pct AS "off by %:", one_bytes / gib() AS "one rank GiB:",
    peak_bytes / gib() AS "peak GiB:", saved_pct AS "saved %:", rank_params / 1e6 AS "million parameters a rank:",
    wire_bytes / 1e9 AS "sent GB:"
FROM bench_tp WHERE status <> 'skip' ORDER BY id
