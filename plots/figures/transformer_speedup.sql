-- SPDX-License-Identifier: MIT
@use transformer_warm

@slice rows FROM warm ALONG size, seq, precision WHERE status = 'ok' AND variant = (SELECT variant FROM level)

@if (SELECT count(DISTINCT seq) FROM rows) > 2 AND EXISTS (SELECT 1 FROM rows WHERE precision = 'fp32')
    AND EXISTS (SELECT 1 FROM rows WHERE precision = 'bf16')

@draw transformer_speedup: bf16 against fp32, training step ({shape(bench, json_remove(options, '$.precision', '$.size', '$.seq'))})
seqs = SELECT DISTINCT seq FROM drawn ORDER BY seq
sizes = SELECT DISTINCT size FROM drawn ORDER BY size_place(size)
SELECT * FROM rows ORDER BY size_place(size), seq, id

@end
