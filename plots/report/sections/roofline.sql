-- SPDX-License-Identifier: MIT
@section 10 bench_roofline: the ceilings of the machine
@of bench_roofline

@figures roofline

Products, TFLOP/s
@from (SELECT 1 FROM bench_roofline WHERE variant = 'gemm' LIMIT 1)

@grid
SELECT size AS "n:", dtype || ':' AS across, iif(status = 'ok', tflops, status) AS cell FROM bench_roofline
    WHERE variant = 'gemm' ORDER BY dtype, size

The same in other shapes, by the fastest algorithm: settled, of a GPU that has rested, and sustained
@from (SELECT 1 FROM bench_roofline WHERE variant = 'gemm_best' LIMIT 1)

@table
SELECT status, dtype, mnk AS "m x n x k:", tflops AS "TFLOP/s:", burst_tflops AS "burst:",
    sustained_tflops AS "sustained?:", algorithm AS "algorithm?"
FROM bench_roofline WHERE variant = 'gemm_best' ORDER BY dtype, id

Copies and launches
@from (SELECT 1 FROM bench_roofline WHERE variant NOT GLOB 'gemm*' LIMIT 1)

@table
SELECT status, variant AS what, pair AS "GPUs?", bytes AS "bytes:", time_us AS "us:", gb_s AS "GB/s:",
    sustained_gb_s AS "sustained GB/s?:"
FROM bench_roofline WHERE variant NOT GLOB 'gemm*' AND status <> 'skip' ORDER BY id

@view steady
SELECT id AS place, case_name(bench, variant, options) AS name, time_us / 1e3 AS burst,
    iif(long, sustained_us / 1e3, NULL) AS sustained, sustained_sm_mhz AS mhz, sustained_power_w AS watts,
    iif(long, NULL, energy_j) AS joules, tflop_per_j AS per_j
FROM (SELECT *, 1 AS long FROM steady_bench_roofline UNION ALL SELECT *, 0 FROM bench_roofline)
WHERE status = 'ok'

@use steady TFLOP
