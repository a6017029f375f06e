-- SPDX-License-Identifier: MIT
@section 90 bench_memory: where every byte goes
@of bench_memory

Bytes are counted tensor by tensor from the plan that a step runs by. Parameters include what extends 16-bit ones to
fp32; scratch includes the tokens and tables. Taken is the peak plus what the planner leaves unused between tensors;
driver is what the device's driver has handed out on top of that once a step is set up.

@figures memory_

@view rows
SELECT *, case_name(bench, '', options) AS name FROM bench_memory ORDER BY size_place(size), batch, precision,
    recompute <> 'none', id

Peak, GiB
@from (SELECT 1 FROM rows LIMIT 1)

@table
SELECT status, name AS "case", mode, seq AS "S:", peak_bytes / gib() AS "peak:",
    predicted_bytes / gib() AS "closed form:", err_pct AS "off by %:", allocated_bytes / gib() AS "taken:",
    (param_bytes + master_bytes) / gib() AS "parameters:", (moment1_bytes + moment2_bytes) / gib() AS "moments:",
    grad_bytes / gib() AS "gradients:", activation_bytes / gib() AS "activations:",
    temporary_bytes / gib() AS "temporaries:", (workspace_bytes + other_bytes) / gib() AS "scratch and other:",
    driver_over_counted_bytes / mib() AS "driver, MiB:", peak_phase AS "peak in"
FROM rows

Tensors, MiB
@from (SELECT 1 FROM rows LIMIT 1)

@table
SELECT status, name AS "case", mode, residual_bytes / mib() AS "residual stream:", saved_per_block_bytes
    / mib() AS "kept by a block:", CAST(saved_per_token_bytes AS INTEGER) AS "bytes kept of a token and block:",
    code(largest) || ' (' || largest_kind || ')' AS "largest allocation", largest_bytes / mib() AS "MiB:",
    iif(largest_block >= 0, 'block ' || largest_block || ' first', 'head or embedding') AS "made by",
    largest_count AS "times:"
FROM rows
WHERE status = 'ok'
