-- SPDX-License-Identifier: MIT
@use transformer_warm

@each SELECT precision, min(id) AS place FROM warm WHERE status = 'ok' GROUP BY precision ORDER BY place

@slice rows FROM warm ALONG size, seq WHERE status = 'ok' AND precision = :precision

@if (SELECT count(DISTINCT variant) FROM rows) > 1

@draw transformer_fusion_{:precision}: What fusion gives, {:precision} ({shape(bench, json_remove(options, '$.precision', '$.size', '$.seq'))})
lengths = SELECT seq FROM drawn GROUP BY seq HAVING count(DISTINCT variant) > 1 ORDER BY seq
sizes = SELECT size FROM drawn GROUP BY size HAVING count(DISTINCT variant) > 1 ORDER BY size_place(size)
variants = SELECT column1 FROM (VALUES ('none'), ('kernels'), ('graph')) WHERE column1 IN (SELECT variant FROM drawn)
SELECT * FROM rows ORDER BY size_place(size), seq, id

@end

@end
