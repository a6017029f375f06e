-- SPDX-License-Identifier: MIT
@each SELECT size, min(id) AS place FROM bench_recompute WHERE status = 'ok' GROUP BY size ORDER BY place

@slice rows FROM bench_recompute ALONG group, budget, offload WHERE status = 'ok' AND size = :size

@if (SELECT count(DISTINCT variant) FROM rows) > 1

@draw recompute_{:size}: What recomputation saves and costs, {:size} ({shape(bench, json_remove(options, '$.size', '$.group', '$.budget', '$.offload'))})
SELECT * FROM rows ORDER BY peak_bytes DESC, step_ms, id

@end

@end
