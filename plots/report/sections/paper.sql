-- SPDX-License-Identifier: MIT
-- bench_accounting's rows of the handouts' numbers, as `paper`.

@view paper
SELECT * FROM bench_accounting WHERE status = 'ok' AND (d_model = 16384 OR d_model IS NULL)
    AND (d_ff = 53248 OR d_ff IS NULL) AND coalesce(measured, 0) = 0
