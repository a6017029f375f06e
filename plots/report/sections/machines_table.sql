-- SPDX-License-Identifier: MIT
-- The fixed cases, a column for each folder in `folder`; a case that ran nowhere is left out, and so is a
-- folder that has none.

@grid
SELECT what AS "on", f.title || ' (' || f.name || '):' AS across,
    a.value || iif(a.share = '', '', ' (' || a.share || ')') AS cell FROM all_first a JOIN folder f USING (place)
    WHERE a.nth IN (SELECT nth FROM all_first WHERE value <> '')
    AND a.place IN (SELECT place FROM all_first WHERE value <> '') ORDER BY a.nth, f.place
