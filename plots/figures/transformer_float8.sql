-- SPDX-License-Identifier: MIT
@use float8_steps

@view rows
SELECT * FROM float8_steps WHERE status = 'ok' AND speedup_bf16 > 0 AND gap IS NOT NULL
    AND id IN (SELECT max(id) FROM float8_steps WHERE status = 'ok' GROUP BY size, seq, batch, precision)

@if (SELECT count(DISTINCT precision) FROM rows) > 1

@draw transformer_float8: Training steps in float8: what recipes gain and what they cost
list = SELECT precision FROM drawn GROUP BY place ORDER BY place
sizes = SELECT size FROM drawn GROUP BY style ORDER BY style
contexts = SELECT seq FROM drawn GROUP BY style ORDER BY style
SELECT *, dense_rank() OVER (ORDER BY best DESC, precision) AS place,
    dense_rank() OVER (ORDER BY size_place(size), seq, batch) AS style
FROM (SELECT *, max(speedup_bf16) OVER (PARTITION BY precision) AS best FROM rows) ORDER BY place, style

@end
