-- SPDX-License-Identifier: MIT
@view paper
SELECT * FROM bench_accounting WHERE status = 'ok' AND variant IN ('memory', 'fsdp') AND d_model = 16384

@if (SELECT count(DISTINCT tokens) FROM paper) > 1 AND (SELECT count(DISTINCT variant) FROM paper) > 1

@draw accounting_fsdp: Devices for a model (d {max(d_model)}, F {max(d_ff)}, {max(blocks)} blocks)
tokens = SELECT DISTINCT tokens FROM drawn ORDER BY tokens
devices = SELECT DISTINCT printf('%d', device_memory) FROM drawn ORDER BY device_memory
SELECT * FROM paper ORDER BY id
