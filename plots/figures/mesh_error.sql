-- SPDX-License-Identifier: MIT
@if (SELECT count(*) FROM bench_mesh WHERE variant IN ('published', 'measured') AND status = 'ok') > 3

@draw mesh_error: Predicted over reported or measured speed
sources = SELECT DISTINCT who FROM drawn
SELECT *, coalesce(published_gpus, gpus) AS world, coalesce(fitted, 0) AS left_out,
    CASE WHEN variant = 'measured' THEN 'here' WHEN source LIKE 'Megatron%' THEN 'Megatron'
        ELSE replace(substr(source, 1, instr(source, ',') - 1), ' ', '_') END AS who
    FROM bench_mesh WHERE variant IN ('published', 'measured') AND status = 'ok' ORDER BY variant, id
