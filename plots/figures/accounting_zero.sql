-- SPDX-License-Identifier: MIT
@slice paper FROM bench_accounting ALONG ranks, recipe, strategy WHERE variant = 'zero' AND status = 'ok'

@if (SELECT count(DISTINCT strategy) FROM paper) > 1

@draw accounting_zero: Memory of a rank: {max(model)}
ranks = SELECT DISTINCT ranks FROM drawn ORDER BY ranks
recipes = SELECT column1 FROM (VALUES ('fp32'), ('bf16'), ('bf16-grad32')) WHERE column1 IN (SELECT recipe FROM drawn)
stages = SELECT column1 FROM (VALUES ('ddp'), ('zero1'), ('zero2'), ('zero3'))
    WHERE column1 IN (SELECT strategy FROM drawn)
SELECT * FROM paper ORDER BY id
