-- SPDX-License-Identifier: MIT
-- How far runs of one case are from each other: at one commit, on the same GPUs.
@section -15 From run to run

## From run to run
@from repeats LIMIT 1

Each line is one case in several runs of the same programs on the same GPUs, each with its own median (of a step: mean).
A difference within the range of two cases is none.
@from repeats LIMIT 1

@table
SELECT bench, case_name(bench, variant, options) AS "case", time, runs AS "runs:", middle AS "median:",
    n4(least) || ' to ' || n4(most) AS "range:", 100 * (most - least) / middle AS "range %:"
FROM repeats ORDER BY rowid
