-- SPDX-License-Identifier: MIT
-- The README's table of machines: the fixed cases of the first screen, with their share of the limit.

@use machines_table

Newest rows: {group_concat(said, '; ')}.
@from (SELECT gpus || ': ' || group_concat(said, ', ') AS said
    FROM (SELECT iif(title GLOB 'CPU*', title, substr(title, instr(title, ' x ') + 3)) AS gpus,
    min(place) AS first, date || ' (' || version || ') '
    || group_concat(code(name), ' ') AS said FROM (SELECT * FROM folder ORDER BY place) GROUP BY 1, date, version
    ORDER BY first) GROUP BY gpus ORDER BY min(first)) HAVING count(*)
