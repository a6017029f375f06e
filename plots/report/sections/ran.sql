-- SPDX-License-Identifier: MIT
@section 200 What ran
@of machine

@use rows

The newest row of each case. Throttled rows were measured while the clocks were held back.

@table
SELECT link(bench_table || '.csv', bench_table || '.csv') AS file, sum(status = 'ok') AS "ok:",
    sum(status = 'oom') AS "oom:", sum(status = 'skip') AS "skip:", sum(status = 'fail') AS "fail:",
    sum(coalesce(throttle, 'above_cap') <> 'above_cap') AS "throttled:", max(gpu) AS "of", substr(min(utc), 1, 10)
    || iif(substr(min(utc), 1, 10) = substr(max(utc), 1, 10), '', ' to ' || substr(max(utc), 1, 10)) AS "on"
FROM rows GROUP BY bench_table ORDER BY bench_table

- {code(bench)} **{status}** x {count(*)}: {reason}
({iif(count(*) > 1, 'such as ', '')}{case_name(bench, variant, options)}).
@from (SELECT *, row_number() OVER (PARTITION BY bench, status, reason ORDER BY id) AS nth FROM rows
    WHERE status <> 'ok' ORDER BY id) GROUP BY bench, status, reason ORDER BY bench, min(id)

Of the newest run, {code((SELECT run_id FROM machine ORDER BY id DESC LIMIT 1))}; {link('machine.csv', 'machine.csv')}
has every run and its command.

@table
SELECT key AS what, value FROM machine
    WHERE id IN (SELECT max(id) FROM machine WHERE run_id = (SELECT run_id FROM machine ORDER BY id DESC LIMIT 1)
    GROUP BY key) AND key NOT IN ('bench', 'options', 'command') ORDER BY id
