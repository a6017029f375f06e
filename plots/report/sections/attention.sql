-- SPDX-License-Identifier: MIT
@section 40 bench_attention: what unfused attention costs
@of bench_attention

@figures attention_

@slice plain FROM bench_attention ALONG seq, head_dim, dtype

{shape(bench, json_remove(options, '$.seq', '$.head_dim', '$.dtype'))}, one head. Times are medians.
@from plain

-- The longest S, and of it the largest D, at which both variants ran.
@view longest
SELECT u.dtype, u.seq, u.head_dim, u.mem_before_bwd_bytes / f.mem_before_bwd_bytes AS memory,
    u.fwd_ms / f.fwd_ms AS time, (SELECT count(*) FROM plain o WHERE o.dtype = u.dtype AND o.variant = 'unfused'
    AND o.status = 'oom') AS oom, (SELECT count(*) FROM plain o WHERE o.dtype = u.dtype
    AND o.variant = 'unfused') AS cases
FROM plain u
JOIN plain f ON u.variant = 'unfused' AND f.variant = 'flash' AND f.dtype = u.dtype AND f.seq = u.seq
    AND f.head_dim = u.head_dim
WHERE u.status = 'ok' AND f.status = 'ok' GROUP BY u.dtype
    HAVING u.seq * 1024 + u.head_dim = max(u.seq * 1024 + u.head_dim)

@each SELECT dtype, min(id) AS place FROM plain GROUP BY dtype ORDER BY place

### {:dtype}

At S {seq}, D {head_dim}, unfused holds {memory} times as much as flash before the backward, and its forward takes
{time} times as long.[[{only(oom > 0)} Unfused is out of memory in {oom} of {cases} cases.]]
@from longest WHERE dtype = :dtype

@view long
SELECT *, CASE variant WHEN 'unfused' THEN 1 WHEN 'fused' THEN 2 ELSE 3 END AS place FROM plain WHERE dtype = :dtype
    AND status <> 'skip'

@grid
SELECT head_dim AS "D:", seq AS "S:", variant || ' ' || what || ':' AS across, cell
FROM ( SELECT head_dim, seq, variant, place, 1 AS nth, 'forward ms' AS what, iif(status = 'ok', fwd_ms, status) AS cell
    FROM long UNION ALL SELECT head_dim, seq, variant, place, 2, 'backward ms', iif(status = 'ok', bwd_ms, '') FROM long
    UNION ALL SELECT head_dim, seq, variant, place, 3, 'MiB before backward',
    iif(status = 'ok', mem_before_bwd_bytes / mib(), '') FROM long UNION ALL SELECT head_dim, seq, variant, place, 4,
    'peak MiB', iif(status = 'ok', peak_bytes / mib(), '') FROM long UNION ALL SELECT head_dim, seq, variant, place, 5,
    'bytes kept / S²', iif(status = 'ok', mem_over_s2, '') FROM long) ORDER BY head_dim, seq, nth, place

@end
