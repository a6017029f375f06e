-- SPDX-License-Identifier: MIT
@if (SELECT count(*) FROM bench_mesh WHERE variant = 'published' AND status = 'ok') > 3

@draw mesh_error: Predicted over reported speed of published runs
sources = SELECT DISTINCT replace(substr(source, 1, instr(source, ',') - 1), ' ', '_') FROM drawn
SELECT *, replace(substr(source, 1, instr(source, ',') - 1), ' ', '_') AS who FROM bench_mesh
    WHERE variant = 'published' AND status = 'ok' ORDER BY id

@end
