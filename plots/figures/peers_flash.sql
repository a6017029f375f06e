-- SPDX-License-Identifier: MIT
-- A row for each shape: each peer's ratios with their intervals, forward and backward, and in words what gives none.
-- Without windows, documents and deterministic backwards. Where we lead least comes first; shapes of a single head,
-- which fill no GPU, come last.
@view passes
SELECT 'fwd' AS pass, id, place, heads, gpu, utc, impl, peer, iif(fwd_why IS NULL, fwd_ratio, NULL) AS ratio,
    fwd_ratio_lo AS low, fwd_ratio_hi AS high, fwd_why AS why
FROM attention_pairs
WHERE dtype = 'bf16' AND kind = 'attention' AND our_id IS NOT NULL AND fwd_ratio IS NOT NULL
UNION ALL SELECT 'bwd', id, place, heads, gpu, utc, impl, peer, iif(bwd_why IS NULL, bwd_ratio, NULL), bwd_ratio_lo,
    bwd_ratio_hi, bwd_why
FROM attention_pairs
WHERE dtype = 'bf16' AND kind = 'attention' AND our_id IS NOT NULL AND bwd_ratio IS NOT NULL ORDER BY id

@view shapes
SELECT place, max(heads) = 1 AS single, min(ratio) AS least, (SELECT machine FROM bench_flash LIMIT 1) AS machine,
    max(gpu) AS gpu, max(utc) AS utc,
    coalesce(group_concat(iif(pass = 'fwd', peer || ': ' || why, NULL), '; '), '-') AS refused_fwd,
    coalesce(group_concat(iif(pass = 'bwd', peer || ': ' || why, NULL), '; '), '-') AS refused_bwd,
    max(iif(impl = 'sdpa_fa2' AND pass = 'fwd', ratio, NULL)) AS fa2_fwd,
    max(iif(impl = 'sdpa_fa2' AND pass = 'fwd', low, NULL)) AS fa2_fwd_lo,
    max(iif(impl = 'sdpa_fa2' AND pass = 'fwd', high, NULL)) AS fa2_fwd_hi,
    max(iif(impl = 'sdpa_fa2' AND pass = 'bwd', ratio, NULL)) AS fa2_bwd,
    max(iif(impl = 'sdpa_fa2' AND pass = 'bwd', low, NULL)) AS fa2_bwd_lo,
    max(iif(impl = 'sdpa_fa2' AND pass = 'bwd', high, NULL)) AS fa2_bwd_hi,
    max(iif(impl = 'sdpa_cudnn' AND pass = 'fwd', ratio, NULL)) AS cudnn_fwd,
    max(iif(impl = 'sdpa_cudnn' AND pass = 'fwd', low, NULL)) AS cudnn_fwd_lo,
    max(iif(impl = 'sdpa_cudnn' AND pass = 'fwd', high, NULL)) AS cudnn_fwd_hi,
    max(iif(impl = 'sdpa_cudnn' AND pass = 'bwd', ratio, NULL)) AS cudnn_bwd,
    max(iif(impl = 'sdpa_cudnn' AND pass = 'bwd', low, NULL)) AS cudnn_bwd_lo,
    max(iif(impl = 'sdpa_cudnn' AND pass = 'bwd', high, NULL)) AS cudnn_bwd_hi,
    max(iif(impl = 'fa4' AND pass = 'fwd', ratio, NULL)) AS fa4_fwd,
    max(iif(impl = 'fa4' AND pass = 'fwd', low, NULL)) AS fa4_fwd_lo,
    max(iif(impl = 'fa4' AND pass = 'fwd', high, NULL)) AS fa4_fwd_hi,
    max(iif(impl = 'fa4' AND pass = 'bwd', ratio, NULL)) AS fa4_bwd,
    max(iif(impl = 'fa4' AND pass = 'bwd', low, NULL)) AS fa4_bwd_lo,
    max(iif(impl = 'fa4' AND pass = 'bwd', high, NULL)) AS fa4_bwd_hi,
    max(iif(impl = 'fa3' AND pass = 'fwd', ratio, NULL)) AS fa3_fwd,
    max(iif(impl = 'fa3' AND pass = 'fwd', low, NULL)) AS fa3_fwd_lo,
    max(iif(impl = 'fa3' AND pass = 'fwd', high, NULL)) AS fa3_fwd_hi,
    max(iif(impl = 'fa3' AND pass = 'bwd', ratio, NULL)) AS fa3_bwd,
    max(iif(impl = 'fa3' AND pass = 'bwd', low, NULL)) AS fa3_bwd_lo,
    max(iif(impl = 'fa3' AND pass = 'bwd', high, NULL)) AS fa3_bwd_hi
FROM passes GROUP BY place HAVING min(ratio) IS NOT NULL

@draw peers_flash: Attention in bf16: the time of peers over ours
shapes := SELECT count(*) FROM drawn
single := SELECT sum(single) FROM drawn
three := SELECT count(fa3_fwd) FROM drawn
SELECT s.*, replace(place, ',', '') AS shape FROM shapes s ORDER BY single, least
