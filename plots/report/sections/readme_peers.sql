-- SPDX-License-Identifier: MIT
-- The README's table of peers: each kind of work by the cases of all folders.

-- Attention that differs only in its mask or in the order of additions is one kind; the worst case says which it is.
@view kinds_of_work
SELECT *, CASE WHEN work GLOB 'attention in a window, *' OR work GLOB 'attention of packed documents, *'
    OR work GLOB 'deterministic attention, *' THEN 'windowed, packed or deterministic attention'
    || substr(work, instr(work, ', ')) ELSE work END AS kind
FROM all_strongest
WHERE library IS NULL AND work NOT GLOB '*, one head'

@table
SELECT kind AS work, sum(verdict = 'slower') || ' / ' || sum(verdict = 'same') || ' / '
    || sum(verdict = 'faster') AS "faster / same / slower:",
    iif(count(*) > 1, printf('%.2f to %.2f', min(ratio), max(ratio)), printf('%.2f', ratio)) AS "all ratios:",
    (SELECT said || ', ' || code(name) FROM kinds_of_work w JOIN folder f ON f.place = place_
    WHERE w.kind = s.kind ORDER BY ratio, place_, id LIMIT 1) AS "the worst case"
FROM kinds_of_work s
GROUP BY kind ORDER BY min(ratio)

[[Of the listed steps of PyTorch, {ran.said} ran. ]][[Ratios for attention with a single head, {one.said}, are in the
reports. ]][[Where both sides call the same library, the ratio compares only the harnesses: {same.said}.]]
@from (SELECT 1)
LEFT JOIN (SELECT group_concat(ran || ' of ' || cases || ' ' || what, ' and ') AS said
    FROM (SELECT what, count(DISTINCT ran) AS ran, cases FROM all_planned p WHERE cases = (SELECT max(cases)
    FROM all_planned f WHERE f.what = p.what) GROUP BY what)) ran
LEFT JOIN (SELECT printf('%.2f to %.2f', min(ratio), max(ratio)) AS said FROM all_strongest
    WHERE work GLOB '*, one head' HAVING count(*)) one
LEFT JOIN (SELECT group_concat(said, '; ') AS said FROM (SELECT library || ' ' || printf('%.2f to %.2f', min(ratio),
    max(ratio)) || ' (' || counted(count(*), 'case') || ')' AS said FROM all_strongest WHERE library IS NOT NULL
    GROUP BY library)) same
WHERE coalesce(ran.said, one.said, same.said) IS NOT NULL

No ratio is formed where {group_concat(said, '; where ')}.
@from (SELECT why || ': ' || group_concat(work || ' (' || rows || ')', ', ') AS said
    FROM (SELECT why, work, count(*) AS rows FROM all_refused r
    WHERE place_ = (SELECT min(place_) FROM all_refused f WHERE f.work = r.work) GROUP BY 1, 2) GROUP BY why)
    HAVING count(*)
