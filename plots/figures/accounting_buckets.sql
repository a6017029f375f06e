-- SPDX-License-Identifier: MIT
@slice paper FROM bench_accounting ALONG ranks, kappa, bucket WHERE variant = 'buckets' AND grad_bits = 16
    AND status = 'ok'

@if (SELECT count(DISTINCT bucket) FROM paper) > 1

@draw accounting_buckets: Overhead of buckets: {max(model)}, 16-bit gradients, {printf('%.6g', max(overhead))} us per call
ranks = SELECT DISTINCT ranks FROM drawn ORDER BY ranks
kappas = SELECT DISTINCT printf('%.6g', kappa) FROM drawn ORDER BY kappa
SELECT * FROM paper ORDER BY id
