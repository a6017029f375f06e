-- SPDX-License-Identifier: MIT
@each SELECT precision, min(id) AS place FROM bench_memory WHERE status = 'ok' GROUP BY precision ORDER BY place

@slice rows FROM bench_memory ALONG seq, mode WHERE status = 'ok' AND precision = :precision
    AND variant = (SELECT iif(sum(variant = 'graph'), 'graph', 'kernels') FROM bench_memory WHERE status = 'ok')

@draw memory_peak_{:precision}: Peak memory, {:precision} ({shape(bench, json_remove(options, '$.precision', '$.seq', '$.mode'))})
lengths = SELECT DISTINCT seq FROM drawn ORDER BY seq
modes = SELECT mode FROM drawn GROUP BY mode ORDER BY min(rowid)
SELECT * FROM rows ORDER BY id

@end
