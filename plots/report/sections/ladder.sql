-- SPDX-License-Identifier: MIT
@section 116 Feature by feature
@of bench_transformer bench_fsdp

@use ladder_rows

@figures ladder

@each SELECT grp, title, big FROM ladder GROUP BY grp ORDER BY min(place)

### {:title}

A line with + includes all the lines above it; one with "with" is compared with the last line with +.
"At first" is before the first step: parameters, master weights and moments.

@view here
SELECT * FROM ladder WHERE grp = :grp

@table
SELECT status, feature, first_bytes / iif(:big, gib(), mib()) AS "at first, GiB or MiB:",
    peak_bytes / iif(:big, gib(), mib()) AS "peak:", step_ms AS "step ms:", gain AS "times as fast:",
    tokens_per_s AS "tokens/s:", mfu_causal_pct AS "MFU %?:",
    iif("on" OR gain IS NULL, NULL, signed_pct(100 / gain - 100)) AS "of time?:",
    iif("on" OR gain IS NULL, NULL, iif(peak_bytes > below_peak, '+', '-')
    || bytes(abs(peak_bytes - below_peak))) AS "of memory?:"
FROM here ORDER BY place

From "{a.feature}" to "{z.feature}" the step becomes {a.step_ms / z.step_ms} times as fast, and its peak
{bytes(abs(z.peak_bytes - a.peak_bytes))} {iif(z.peak_bytes > a.peak_bytes, 'larger', 'smaller')}.[[ The largest part is
"{b.feature}": {b.gain} times.]]
@from (SELECT * FROM here WHERE status = 'ok' ORDER BY place LIMIT 1) a
JOIN (SELECT * FROM here WHERE "on" AND status = 'ok' ORDER BY place DESC LIMIT 1) z
LEFT JOIN (SELECT * FROM here WHERE "on" AND gain IS NOT NULL ORDER BY gain DESC LIMIT 1) b
WHERE a.place < z.place AND a.run_of = z.run_of

@end
