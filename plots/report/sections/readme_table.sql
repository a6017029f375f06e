-- SPDX-License-Identifier: MIT
-- The README's table of machines: the fixed cases of the first screen, with their share of the limit. Machines that are
-- alike have one column, in which a case is that of the newest folder that has it with its share, else that has it.

@grid
SELECT what AS "on", title || ':' AS across, cell FROM (SELECT a.nth, a.what, f.title,
    min(f.place) OVER (PARTITION BY f.title) AS first, a.value || iif(a.share = '', '', ' (' || a.share || ')') AS cell,
    row_number() OVER (PARTITION BY f.title, a.nth ORDER BY a.value = '', a.share = '', f.utc DESC, f.place) AS newest
    FROM all_first a JOIN folder f USING (place) WHERE a.nth IN (SELECT nth FROM all_first WHERE value <> '')
    AND a.place IN (SELECT place FROM all_first WHERE value <> ''))
    WHERE newest = 1 ORDER BY nth, first

Origin of the rows: {group_concat(said, '; ')}. How each folder was measured, and at which commit:
{link('results/README.md', 'results/README.md')}.
@from (SELECT gpus || ', ' || counted(count(*), 'folder') || ' of ' || min(date)
    || iif(min(date) < max(date), ' to ' || max(date), '') AS said
    FROM (SELECT *, iif(title GLOB 'CPU*', title, substr(title, instr(title, ' x ') + 3)) AS gpus FROM folder)
    GROUP BY gpus ORDER BY min(place)) HAVING count(*)
