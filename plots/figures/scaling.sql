-- SPDX-License-Identifier: MIT
-- A figure for each dimension that was varied alone. Where a dimension is 0, it is that of the size: such rows vary in
-- something else.
@use transformer_warm

@each SELECT column1 AS axis, column2 AS least, column3 AS by, column4 AS name, column5 AS what
FROM (VALUES
    ('layers', 3, 'precision', 'depth', 'blocks'),
    ('d_model', 3, 'precision', 'width', 'width (d-model)'),
    ('batch', 3, 'precision', 'batch', 'sequences'),
    ('seq', 5, 'recompute', 'context', 'context length S (tokens)'),
    ('heads_kv', 3, 'precision', 'heads', 'key and value heads'))

@view along
SELECT w.*, json_remove(options, '$.' || :axis, '$.' || :by) AS same, CASE :axis WHEN 'd_model' THEN d_model
    WHEN 'heads_kv' THEN heads_kv ELSE json_extract(options, '$.' || :axis) END AS point
    FROM warm w NATURAL JOIN level WHERE status = 'ok' AND mode = 'train-step'
    AND point <> 0

@view rows
SELECT * FROM along WHERE same = (SELECT same FROM along GROUP BY 1 ORDER BY count(*) DESC, min(id) LIMIT 1)

@view lines
SELECT *, min(point * 1e6 + id) OVER (PARTITION BY json_extract(options, '$.' || :by)) AS first,
    json_extract(options, '$.' || :by) AS line FROM rows

@if (SELECT count(DISTINCT point) FROM rows) >= :least

@draw scaling_{:name}: Scaling in {:name} ({shape(bench, json_remove(options, '$.' || :axis, '$.' || :by))})
x_label = SELECT :what
points = SELECT DISTINCT point FROM drawn ORDER BY point
names = SELECT iif(:by = 'recompute', char(34) || 'recompute ' || line || char(34), line) FROM drawn GROUP BY line
    ORDER BY min(first)
scale = SELECT iif(max(step_ms) > 3 * min(step_ms) OR max(peak_bytes) > 3 * min(peak_bytes), 'log', 'zero') FROM drawn
SELECT *, point AS x, column1 AS panel, iif(column1 = 1, step_ms, peak_bytes / 1073741824.0) AS y,
    dense_rank() OVER (ORDER BY first) AS style FROM lines, (VALUES (1), (2)) ORDER BY point, id

@end

@end
