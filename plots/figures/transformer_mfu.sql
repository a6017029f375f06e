-- SPDX-License-Identifier: MIT
@use transformer_warm

@slice rows FROM warm ALONG size, seq, precision WHERE status = 'ok' AND variant = (SELECT variant FROM level)

@if (SELECT count(DISTINCT seq) FROM rows) > 2 AND (SELECT count(mfu_causal_pct) + count(ceiling_pct) FROM rows) > 0

@draw transformer_mfu: Share of the GPU's peak in a step ({shape(bench, json_remove(options, '$.precision', '$.size', '$.seq'))})
seqs = SELECT DISTINCT seq FROM drawn ORDER BY seq
sizes = SELECT DISTINCT size FROM drawn ORDER BY size_place(size)
precisions = SELECT precision FROM drawn GROUP BY precision HAVING count(DISTINCT seq) > 2
    ORDER BY min(rowid)
share = SELECT iif(count(mfu_causal_pct), 'mfu_causal_pct', 'ceiling_pct') FROM drawn
SELECT * FROM rows ORDER BY size_place(size), seq, id

@end
