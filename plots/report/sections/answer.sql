-- SPDX-License-Identifier: MIT
-- @use answer VARIANT,...: `answer`, the group of `ddp` that answers a problem. It has all of these strategies; the
-- main size before others, the one with most rows, bf16.

@view answer
SELECT grp FROM ddp d
WHERE (SELECT count(*) FROM best b WHERE b.grp = d.grp AND instr(',$1,', ',' || b.variant || ',')) = 1
    + length('$1') - length(replace('$1', ',', '')) GROUP BY grp ORDER BY size = (SELECT size FROM main_size) DESC,
    count(*) DESC, precision = 'bf16' DESC, min(place) LIMIT 1
