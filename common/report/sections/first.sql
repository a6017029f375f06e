-- SPDX-License-Identifier: MIT
@section -10 First

@table
SELECT work, count(*), min(ratio) AS "m:", max(ratio) AS "x:", median(ratio) AS "med:" FROM strongest GROUP BY work

@table
SELECT why, work, count(*) AS "n:" FROM judged WHERE why IS NOT NULL GROUP BY 1, 2
