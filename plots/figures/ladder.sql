-- SPDX-License-Identifier: MIT
-- The lines of the report's section of this name.
@use ladder_rows

@each SELECT grp, title, 'ladder_' || iif(ranks IS NULL, '', 'ranks_') || size || '_' || coalesce(ranks, seq) AS name,
    min(place) AS first FROM ladder WHERE status = 'ok' GROUP BY grp HAVING count(*) > 3 AND min(nth) = 1 ORDER BY first

@draw {:name}: Feature by feature ({substr(:title, instr(:title, ': ') + 2)})
SELECT row_number() OVER (ORDER BY place) AS place,
    replace(replace(replace(replace(feature, ',', ' and'), ' an eager framework''s ops and', ' eager ops and'),
    'computed again', 'recomputed'), ' half', '') AS feature, "on" AS main, step_ms, peak_bytes, machine, gpu, utc
FROM ladder
WHERE grp = :grp AND status = 'ok' ORDER BY place

@end
