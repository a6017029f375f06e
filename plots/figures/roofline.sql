-- SPDX-License-Identifier: MIT
@draw roofline: Ceilings of the machine
dtypes = SELECT dtype FROM drawn WHERE variant = 'gemm' GROUP BY dtype ORDER BY min(rowid)
sizes = SELECT DISTINCT size FROM drawn WHERE variant = 'gemm' ORDER BY size
variants = SELECT variant FROM drawn GROUP BY variant ORDER BY min(rowid)
bytes = SELECT DISTINCT printf('%.0f', bytes) FROM drawn WHERE variant = 'copy' ORDER BY bytes
SELECT * FROM bench_roofline WHERE status = 'ok' ORDER BY id
