-- SPDX-License-Identifier: MIT
-- Fewer than three lengths with a ratio are no map.
@use flash_plain

@each SELECT dtype, min(id) AS place FROM plain WHERE status = 'ok' GROUP BY dtype ORDER BY place

@view rows
SELECT * FROM plain WHERE status = 'ok' AND dtype = :dtype AND variant = 'flash'

@if (SELECT count(DISTINCT seq) FROM rows WHERE speedup_fwd IS NOT NULL OR speedup_bwd IS NOT NULL) > 2

@draw flash_speedup_{:dtype}: Speedup of flash over unfused, {:dtype} ({shape(bench, json_remove(options, '$.dtype', '$.seq', '$.head_dim'))})
seqs = SELECT DISTINCT seq FROM drawn ORDER BY seq
dims = SELECT DISTINCT head_dim FROM drawn ORDER BY head_dim
speedups = SELECT DISTINCT speedup_fwd FROM drawn WHERE speedup_fwd IS NOT NULL ORDER BY speedup_fwd
SELECT * FROM rows ORDER BY id

@end

@end
