-- SPDX-License-Identifier: MIT
@section 150 bench_accounting: memory and communication on paper
@of bench_accounting

Calculations, not measurements: they are the same on every machine. `./bench_accounting` prints each derivation; the
formulas are in docs/formulas.md.

@use paper

### (a), (b): devices that hold the training state

Devices with everything sharded, and with half of the activations whole on each device (FSDP).
@from paper WHERE variant IN ('memory', 'fsdp') LIMIT 1

@grid
SELECT printf('%.1f GB', device_memory / 1e9) AS device, tokens || ' tokens' || iif(variant = 'fsdp', ', FSDP', '')
    || ':' AS across, coalesce(devices, 'none') AS cell FROM paper WHERE variant IN ('memory', 'fsdp')
    ORDER BY device_memory, tokens, variant = 'fsdp'

### (c): compute-bound from which batch?

@table
SELECT x AS "X:", y AS "Y:", CAST(at_tokens AS INTEGER) AS "B:", printf('%.1f', math_us) AS "T_math us:",
    printf('%.1f', fsdp_us) AS "T_FSDP us:", printf('%.1f', tp_us) AS "T_TP us:",
    printf('%.1f', comm_us) AS "together us:", bound_by AS "bound by",
    printf('%.1f', tokens_per_device) AS "tokens per device:"
FROM paper
WHERE variant = 'compute_bound' ORDER BY id

### (d): ways to a smaller batch

@table
SELECT way, printf('%.1f', tokens_per_device) AS "tokens per device:", of_given AS "of as given:", what AS "what it is"
    FROM paper WHERE variant = 'batch' ORDER BY id

### The forms of 2026: the most devices that stay bound by compute

@grid
SELECT form, 'N at B ' || CAST(batch AS INTEGER) || ':' AS across, devices_most AS cell FROM paper
    WHERE variant = 'closed_forms' AND form <> 'all-reduce' AND batch > 0 ORDER BY form, batch

### Tokens of a GPU that hide the gradients

@table
SELECT model, ranks AS "ranks:", grad_bits AS "bits:", comm_us / 1e3 AS "all-reduce ms:",
    CAST(round(tokens_per_device) AS INTEGER) AS "tokens per GPU:" FROM paper WHERE variant = 'data_parallel'
    ORDER BY id

### Buckets on paper

The handout's model n o + s / (n w) is best at sqrt(s o w); where collectives are hidden, but slow compute by kappa of
their time, sqrt(kappa s o w).

@table
SELECT ranks AS "ranks:", grad_bits AS "bits:", algbw_gb_s AS "w GB/s:",
    CAST(round(best_bytes / 1e6) AS INTEGER) AS "handout: b MB:", printf('%.1f', best_buckets) AS "buckets:",
    printf('%.6g', kappa) AS "kappa:", CAST(round(best_contention_bytes / 1e6) AS INTEGER) AS "b MB:",
    overhead_contention_us / 1e3 AS "ms over backward:"
FROM paper
WHERE variant = 'buckets' AND bucket = 0 ORDER BY id

### Memory and traffic by strategy

Each cell: GiB of a rank after set-up / before the first update / from then on; GB it sends in a step. Activations, and
2 slots of a block, come on top.

@grid
SELECT model, recipe, strategy, counted(ranks, 'rank') || ':' AS across,
    printf('%.2f / %.2f / %.2f; %.2f', init_bytes / gib(), before_step_bytes / gib(), after_step_bytes / gib(),
    wire_bytes / 1e9) AS cell
FROM paper
WHERE variant = 'zero' ORDER BY model, recipe, strategy, ranks
