-- SPDX-License-Identifier: MIT
@slice rows FROM bench_mesh ALONG model, gpus WHERE variant = 'best' AND status = 'ok' AND rank = 1

@if (SELECT count(DISTINCT gpus) FROM rows) > 2

@draw mesh_best: The best mesh, S {max(seq)}, {max(global_batch)} sequences
models = SELECT DISTINCT model FROM drawn ORDER BY (SELECT min(id) FROM rows r WHERE r.model = drawn.model)
largest = SELECT model FROM drawn ORDER BY model_flops DESC LIMIT 1
gpus = SELECT DISTINCT gpus FROM drawn ORDER BY gpus
SELECT * FROM rows ORDER BY gpus, id
