-- SPDX-License-Identifier: MIT
@use transformer_warm

@each SELECT precision, min(id) AS place FROM bench_transformer WHERE status = 'ok' GROUP BY precision ORDER BY place

@slice rows FROM bench_transformer ALONG size, warmup WHERE status = 'ok' AND precision = :precision
    AND variant = (SELECT variant FROM level) AND cold = 1

@if (SELECT count(DISTINCT warmup) FROM rows) > 1

@draw transformer_warmup_{:precision}: Warm-up and the mean, {:precision} ({shape(bench, json_remove(options, '$.precision', '$.size', '$.warmup', '$.cold'))})
sizes = SELECT size FROM drawn GROUP BY size HAVING count(DISTINCT warmup) > 1 ORDER BY size_place(size)
counts = SELECT DISTINCT warmup FROM drawn ORDER BY warmup
SELECT * FROM rows ORDER BY size_place(size), warmup

@end

@end
