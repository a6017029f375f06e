-- SPDX-License-Identifier: MIT
@draw roofline: Ceilings of the machine
dtypes = SELECT dtype FROM drawn WHERE variant = 'gemm' GROUP BY dtype ORDER BY min(rowid)
sizes = SELECT DISTINCT size FROM drawn WHERE variant = 'gemm' ORDER BY size
sheets = SELECT DISTINCT printf('%.6g', peak_tflops(gpu, dtype)) FROM drawn
    WHERE variant = 'gemm' AND peak_tflops(gpu, dtype) > 0 ORDER BY 1
sheet_gb_s := SELECT max(peak_gb_s(gpu)) FROM drawn WHERE variant = 'copy'
variants = SELECT variant FROM drawn GROUP BY variant ORDER BY min(rowid)
bytes = SELECT DISTINCT printf('%d', bytes) FROM drawn WHERE variant = 'copy' ORDER BY bytes
SELECT * FROM bench_roofline WHERE status = 'ok' ORDER BY id
