-- SPDX-License-Identifier: MIT
@section 5 bench_qualify: is every GPU as fast as it should be?
@of bench_qualify

@figures qualify

@table
SELECT status, metric, coalesce(rank, pair, 'all') AS "GPU", value AS "value:", reference AS "reference:",
    bound AS "bound:", behind_pct AS "behind, %:", verdict, why AS "why?"
    FROM (SELECT *, behind_pct AS behind FROM bench_qualify) ORDER BY id
