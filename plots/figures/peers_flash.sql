-- SPDX-License-Identifier: MIT
-- A row for each shape: each peer's ratios, forward and backward. Where we lead least comes first.
@view shapes
SELECT place, min(min(fwd_ratio, coalesce(bwd_ratio, fwd_ratio))) AS least,
    (SELECT machine FROM bench_flash LIMIT 1) AS machine, max(gpu) AS gpu, max(utc) AS utc,
    max(iif(impl = 'sdpa_fa2', fwd_ratio, NULL)) AS fa2_fwd, max(iif(impl = 'sdpa_fa2', bwd_ratio, NULL)) AS fa2_bwd,
    max(iif(impl = 'sdpa_cudnn', fwd_ratio, NULL)) AS cudnn_fwd,
    max(iif(impl = 'sdpa_cudnn', bwd_ratio, NULL)) AS cudnn_bwd, max(iif(impl = 'fa4', fwd_ratio, NULL)) AS fa4_fwd,
    max(iif(impl = 'fa4', bwd_ratio, NULL)) AS fa4_bwd
FROM attention_pairs
WHERE dtype = 'bf16' AND fwd_ratio IS NOT NULL AND our_id IS NOT NULL GROUP BY place

@draw peers_flash: Attention in bf16: the time of peers over ours
shapes := SELECT count(*) FROM drawn
least := SELECT min(least) FROM drawn
most := SELECT max(max(coalesce(fa2_fwd, 0), coalesce(fa2_bwd, 0), coalesce(cudnn_fwd, 0), coalesce(cudnn_bwd, 0),
    coalesce(fa4_fwd, 0), coalesce(fa4_bwd, 0))) FROM drawn
SELECT least, replace(place, ',', ' ') AS shape, fa2_fwd, fa2_bwd, cudnn_fwd, cudnn_bwd, fa4_fwd, fa4_bwd, machine, gpu,
    utc FROM shapes ORDER BY least
