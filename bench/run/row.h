/* SPDX-License-Identifier: MIT */
/* The columns of bench_run, and how they are filled; what must hold after a run, and what its numbers say of its loss. */
#pragma once

#include "bench/model/timing.h"
#include "bench/run/run.h"

/* clang-format off */
#define RUN_COLUMNS                                                                                                    \
    {"global_batch", COLUMN_INT, true, "sequences of a step on all ranks: batch x ranks x micro-batches"},             \
    {"n_steps", COLUMN_INT, false, "steps whose times count: all but the first --warmup"},                             \
    {"tokens", COLUMN_INT, false, "tokens of the run, on all ranks: steps x global_batch x seq"},                      \
    {"step_ms", COLUMN_REAL, true, "a step of the run, of the slowest rank; median"},                                  \
    {"step_p95_ms", COLUMN_REAL, false, "the same, 95th percentile"},                                                  \
    {"step_p99_ms", COLUMN_REAL, false, "the same, 99th percentile"},                                                  \
    {"step_max_ms", COLUMN_REAL, false, "the longest"},                                                                \
    {"slowest_step", COLUMN_INT, false, "which one that was, from 1"},                                                 \
    {"jitter", COLUMN_REAL, true, "step_p99_ms / step_ms"},                                                            \
    {"long_steps", COLUMN_INT, false, "steps of more than 1.5 step_ms"},                                               \
    {"drift_pct", COLUMN_REAL, false, "median of the last quarter of the steps over that of the first, less 1"},       \
    {"wall_s", COLUMN_REAL, false, "the steps that count, by the host's clock"},                                       \
    {"wall_ms", COLUMN_REAL, true, "wall_s / n_steps: what a step costs the user"},                                    \
    {"bare_ms", COLUMN_REAL, true, "ladder: the same step with nothing around it, median; it clips if the rung does"}, \
    {"fed_ms", COLUMN_REAL, false, "ladder: the step with what the rung has, median; blocks of both alternate"},       \
    {"cost_ms", COLUMN_REAL, true, "fed_ms - bare_ms"},                                                                \
    {"cost_lo_ms", COLUMN_REAL, false, "95 % bootstrap interval of cost_ms, lower end"},                               \
    {"cost_hi_ms", COLUMN_REAL, false, "95 % bootstrap interval of cost_ms, upper end"},                               \
    {"cost_pct", COLUMN_REAL, true, "100 cost_ms / bare_ms"},                                                          \
    {"rest_pct", COLUMN_REAL, false, "100 (wall_ms - fed_ms) / wall_ms: the part of the run that the ladder does not explain"}, \
    {"data_wait_ms", COLUMN_REAL, false, "how long a step's host waited for tokens, slowest rank, mean"},              \
    {"data_wait_pct", COLUMN_REAL, true, "100 data_wait_ms / wall_ms"},                                                \
    {"log_ms", COLUMN_REAL, false, "host time of the log per step, while the device works, mean"},                     \
    {"tokens_per_s", COLUMN_REAL, true, "tokens per second of all ranks: global_batch seq / wall_ms"},                 \
    {"mfu_causal_pct", COLUMN_REAL, true, "FLOPs of the model (causal attention) / wall_ms / peak of the GPU"},        \
    MODEL_FLOAT8_COLUMNS,                                                                                              \
    {"loss_first", COLUMN_REAL, false, "loss of the first step, mean over ranks"},                                     \
    {"loss_last", COLUMN_REAL, true, "the same, mean over the last tenth of the steps (10 at least)"},                 \
    {"floor_loss", COLUMN_REAL, true, "generated tokens: the mean loss of a model that knows the source"},             \
    {"above_floor_pct", COLUMN_REAL, true, "100 (loss_last / floor_loss - 1)"},                                        \
    {"loss_gap_pct", COLUMN_REAL, true,                                                                                \
     "for precisions other than bf16: 100 (loss_last / that of the same case in bf16, earlier in this run, - 1)"},     \
    {"entropy_pair", COLUMN_REAL, false, "generated tokens, nats: entropy of a token, given the two before it"},       \
    {"entropy_token", COLUMN_REAL, false, "the same, given only the one before it"},                                   \
    {"entropy_none", COLUMN_REAL, false, "the same, given none"},                                                      \
    {"excess", COLUMN_REAL, false, "loss less that of a model that knows the source, on the same tokens, last quarter of the steps"}, \
    {"excess_sigma", COLUMN_REAL, false, "standard error of excess; an excess below -3 of these is a fail"},           \
    {"updates", COLUMN_INT, false, "updates of the parameters: steps, less those that a loss scale skipped"},          \
    {"norm_last", COLUMN_REAL, false, "L2 norm of the last gradients, before clipping; nan without"},                  \
    {"rate_last", COLUMN_REAL, false, "learning rate of the last update, as the device had it"},                       \
    {"outliers", COLUMN_INT, false, "steps whose loss or norm is 5 deviations off the 128 before it, or not finite"},  \
    {"first_step", COLUMN_INT, false, "steps before those of this process, which a checkpoint had; 0: none"},          \
    {"way", COLUMN_TEXT, false, "rung save: how it saved; lazy is async where updates can't be told to wait"},         \
    {"save_every", COLUMN_INT, false, "rung save: steps between two saves"},                                           \
    {"saves", COLUMN_INT, false, "rung save: checkpoints that the run completed, the one after its last step too"},    \
    {"save_ms", COLUMN_REAL, true, "rung save: what a save adds to the steps of a block of the ladder; median"},       \
    {"durable_ms", COLUMN_REAL, false, "rung save: from the start of a save until it is complete and synced; median"}, \
    {"save_wait_ms", COLUMN_REAL, false, "rung save: how long saves waited for the one before, all together"},         \
    {"state_bytes", COLUMN_INT, false, "rung save: bytes of all files of a checkpoint except the manifest and index"}, \
    {"log", COLUMN_TEXT, false, "name of the log below run/ next to the CSV file"},                                     \
    {"checksum", COLUMN_TEXT, false, "checksum of all parameters after the run; the same on every rank, or the row is fail"}, \
    {"peak_bytes", COLUMN_INT, false, "memory of the model on the rank that needs most"},                              \
    {"params", COLUMN_INT, false, "parameters of the model"},                                                          \
    {"backend", COLUMN_TEXT, false, "the library of the collectives and its version"},                                 \
    {"hosts", COLUMN_INT, false, "hosts that the ranks of the job are on"},                                            \
    {"err_grad", COLUMN_REAL, false, "check of a slice: summed gradients, as in bench_fsdp"},                          \
    {"err_param", COLUMN_REAL, false, "check of a slice: parameters after 3 steps, as in bench_fsdp"}
/* clang-format on */

typedef struct run_result {
    double loss_first,
        loss_last;     /* mean over ranks: of the first step, of the last tenth of the run (10 steps at least) */
    double entropy[3]; /* of the source for who knows 0, 1 and 2 tokens; NAN: no generated tokens */
    double floor;      /* of a window's mean loss */
    double excess,
        sigma; /* loss - surprise, mean of the last quarter of the steps, and how sure that is; NAN likewise */
    uint64_t checksum;
    int64_t updates;
    double norm, rate; /* of the last update */
} run_result;

/* False after making the row `fail`. */
bool run_check(run *x, run_result *out);
void run_fill_row(run *x, const run_result *out);
