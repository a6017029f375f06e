-- SPDX-License-Identifier: MIT
-- What is held depends neither on context nor on batch: those of the first row stand for all. A panel for each pair of
-- dtypes.
@use ddp_drawn

@view rows
SELECT * FROM ddp_drawn WHERE stands AND bench_table = 'bench_zero1'
    AND (seq, batch) = (SELECT seq, batch FROM ddp_drawn WHERE variant = 'zero1' ORDER BY seq, batch LIMIT 1)

@view compared
SELECT precision || '/' || gradients AS panel FROM rows WHERE variant IN ('unsharded', 'zero1', 'zero1-broadcast')
    GROUP BY 1 HAVING sum(variant = 'zero1') AND count(DISTINCT variant) > 1

@if EXISTS (SELECT 1 FROM compared)

@draw zero1_memory: Memory of a rank after an update ({max(size)})
panels = SELECT precision || '/' || gradients FROM drawn GROUP BY 1
    ORDER BY instr('fp32 tf32 bf16 bf16-pure fp16', precision), gradients
ranks = SELECT DISTINCT ranks FROM drawn WHERE variant = 'zero1' ORDER BY ranks
ways = SELECT column1 FROM (VALUES ('unsharded'), ('zero1'), ('zero1-broadcast'))
    WHERE column1 IN (SELECT variant FROM drawn)
SELECT * FROM rows WHERE precision || '/' || gradients IN (SELECT panel FROM compared) ORDER BY place
