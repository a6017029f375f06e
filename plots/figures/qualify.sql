-- SPDX-License-Identifier: MIT
@draw qualify: Ahead of the reference, and behind it
metrics = SELECT metric FROM drawn GROUP BY metric ORDER BY min(rowid)
SELECT * FROM bench_qualify WHERE status = 'ok' AND against = 'reference' ORDER BY id
