-- SPDX-License-Identifier: MIT
-- A figure for each set of options that buckets of three or more sizes ran with; a panel for each context.
@use ddp_drawn

@each SELECT ranks, precision, gradients, batch, how, min(place) AS first FROM ddp_drawn WHERE variant = 'bucketed'
    GROUP BY ranks, precision, gradients, batch, how HAVING count(DISTINCT bucket_mb) > 2 ORDER BY first

@draw ddp_buckets_{:ranks}_{:precision}_{:gradients}_b{:batch}{iif(:how = '', '', '_' || replace(replace(replace(:how, ' ', '-'), ':', '-'), '+', '-'))}: Buckets on {:ranks} ranks, {:precision}, gradients {:gradients}{iif(:how = '', '', ', ' || :how)} ({max(size)}, batch {max(batch)})
seqs_shown = SELECT DISTINCT seq FROM drawn ORDER BY seq
buckets = SELECT DISTINCT printf('%.6g', bucket_mb) FROM drawn ORDER BY bucket_mb
SELECT * FROM ddp_drawn WHERE variant = 'bucketed' AND ranks = :ranks AND precision = :precision
    AND gradients = :gradients AND batch = :batch AND how = :how ORDER BY seq, bucket_mb

@end
