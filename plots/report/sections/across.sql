-- SPDX-License-Identifier: MIT
-- Several folders side by side: machines, or one machine at several commits (COMMIT:PATH).

@use machines_table

Each value has its share of its limit behind it, as on the page of each machine. Compare two folders case by case with
`./stepcmp`.

@table
SELECT f.name AS folder, f.title AS machine, f.date AS "date", f.version AS stepbench,
    sum(s.verdict = 'slower') AS "peers slower:", sum(s.verdict = 'same') AS "the same:",
    sum(s.verdict = 'faster') AS "faster:", min(s.ratio) AS "least ratio:"
FROM folder f
LEFT JOIN all_strongest s ON s.place_ = f.place AND s.library IS NULL GROUP BY f.place ORDER BY f.place

## Compared with the strongest peers

@grid
SELECT work, f.name || ':' AS across, printf('%.2f', min(ratio))
    || iif(count(*) > 1, printf(' to %.2f', max(ratio)), '') AS cell FROM all_strongest s JOIN folder f
    ON f.place = s.place_ WHERE library IS NULL GROUP BY work, f.place ORDER BY min(ratio), f.place
