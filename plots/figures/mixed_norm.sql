-- SPDX-License-Identifier: MIT
@view rows
SELECT * FROM bench_mixed_precision WHERE variant = 'norm' AND magnitude = 1 AND status = 'ok'

@if (SELECT count(DISTINCT width) FROM rows) > 2

@draw mixed_norm: Norms with statistics in 16 bits
widths = SELECT DISTINCT width FROM drawn ORDER BY width
dtypes = SELECT dtype FROM drawn GROUP BY dtype ORDER BY min(rowid)
statistics = SELECT statistics FROM drawn GROUP BY statistics ORDER BY min(rowid)
norms = SELECT norm FROM drawn GROUP BY norm ORDER BY min(rowid)
SELECT * FROM rows ORDER BY id

@end
