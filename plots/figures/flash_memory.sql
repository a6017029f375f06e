-- SPDX-License-Identifier: MIT
@use flash_plain

@each SELECT dtype, min(id) AS place FROM plain WHERE status = 'ok' GROUP BY dtype ORDER BY place

@view rows
SELECT * FROM plain WHERE status = 'ok' AND dtype = :dtype

@if (SELECT count(DISTINCT seq) FROM rows) > 2

@draw flash_memory_{:dtype}: Attention peak memory, {:dtype} ({shape(bench, json_remove(options, '$.dtype', '$.seq', '$.head_dim'))})
seqs = SELECT DISTINCT seq FROM drawn ORDER BY seq
dims = SELECT DISTINCT head_dim FROM drawn ORDER BY head_dim
SELECT * FROM rows ORDER BY id

@end

@end
