-- SPDX-License-Identifier: MIT
-- How far runs of one case are from each other: at one commit, on the same GPUs.
@section -15 From run to run

## From run to run
@from repeats LIMIT 1

Each line is one case in several runs of the same programs on the same GPUs, each with its own median (of a step: mean).
A difference within the range of two cases is none.
@from repeats LIMIT 1

{sum(most <= 1.03 * least)} of {counted(count(*), 'case')} agree within 3 %. The last two columns say how far the steps
of one run are from each other, and at which clocks it ran.
@from repeats HAVING count(*)

@table
SELECT bench, case_name(bench, variant, options) AS "case", time, runs AS "runs:", middle AS "median:",
    iif(least < 0.1, n(least) || ' to ' || n(most), n4(least) || ' to ' || n4(most)) AS "range:",
    100 * (most - least) / middle AS "range %:",
    own AS "10th to 90th percentile of one run, %:", clocks AS "SM clocks, MHz:"
FROM repeats ORDER BY rowid
