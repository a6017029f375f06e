-- SPDX-License-Identifier: MIT
-- A row for each shape: each peer's ratios, forward and backward, and in words what gives none. Where we lead least
-- comes first.
@view passes
SELECT 'fwd' AS pass, id, place, gpu, utc, impl, peer, iif(fwd_why IS NULL, fwd_ratio, NULL) AS ratio, fwd_why AS why
FROM attention_pairs
WHERE dtype = 'bf16' AND our_id IS NOT NULL AND fwd_ratio IS NOT NULL
UNION ALL SELECT 'bwd', id, place, gpu, utc, impl, peer, iif(bwd_why IS NULL, bwd_ratio, NULL), bwd_why
FROM attention_pairs
WHERE dtype = 'bf16' AND our_id IS NOT NULL AND bwd_ratio IS NOT NULL ORDER BY id

@view shapes
SELECT place, min(ratio) AS least, max(ratio) AS most, (SELECT machine FROM bench_flash LIMIT 1) AS machine,
    max(gpu) AS gpu, max(utc) AS utc, max(iif(impl = 'sdpa_fa2' AND pass = 'fwd', ratio, NULL)) AS fa2_fwd,
    max(iif(impl = 'sdpa_fa2' AND pass = 'bwd', ratio, NULL)) AS fa2_bwd,
    max(iif(impl = 'sdpa_cudnn' AND pass = 'fwd', ratio, NULL)) AS cudnn_fwd,
    max(iif(impl = 'sdpa_cudnn' AND pass = 'bwd', ratio, NULL)) AS cudnn_bwd,
    max(iif(impl = 'fa4' AND pass = 'fwd', ratio, NULL)) AS fa4_fwd,
    max(iif(impl = 'fa4' AND pass = 'bwd', ratio, NULL)) AS fa4_bwd,
    coalesce(group_concat(iif(pass = 'fwd', peer || ': ' || why, NULL), '; '), '-') AS refused_fwd,
    coalesce(group_concat(iif(pass = 'bwd', peer || ': ' || why, NULL), '; '), '-') AS refused_bwd
FROM passes GROUP BY place HAVING min(ratio) IS NOT NULL

@draw peers_flash: Attention in bf16: the time of peers over ours
shapes := SELECT count(*) FROM drawn
least := SELECT min(least) FROM drawn
most := SELECT max(most) FROM drawn
SELECT least, most, replace(place, ',', ' ') AS shape, fa2_fwd, fa2_bwd, cudnn_fwd, cudnn_bwd, fa4_fwd, fa4_bwd,
    replace(refused_fwd, ',', ' ') AS refused_fwd, replace(refused_bwd, ',', ' ') AS refused_bwd, machine, gpu, utc
    FROM shapes ORDER BY least
