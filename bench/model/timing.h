/* SPDX-License-Identifier: MIT */
/* Timing whole steps of a trainer, and the rates that follow. */
#pragma once

#include "common/formulas/model.h"
#include "common/launch/launch.h"
#include "common/session/session.h"
#include "common/train/trainer.h"

/* clang-format off */
#define MODEL_PHASE_COLUMNS(part, what)                                                                                \
    {part "_ms", COLUMN_REAL, true, what ", median"},                                                                  \
    {part "_mean_ms", COLUMN_REAL, false, what ", mean"},                                                              \
    {part "_std_ms", COLUMN_REAL, false, what ", standard deviation (n - 1)"}
#define MODEL_STEP_COLUMNS                                                                                             \
    MODEL_PHASE_COLUMNS("fwd", "forward with the loss"),                                                               \
    MODEL_PHASE_COLUMNS("bwd", "backward, including the part of AdamW that runs during it"),                           \
    MODEL_PHASE_COLUMNS("opt", "what remains of AdamW after backward"),                                                \
    MODEL_PHASE_COLUMNS("step", "whole step on the device"),                                                           \
    {"step_p10_ms", COLUMN_REAL, false, "whole step, 10th percentile"},                                                \
    {"step_p90_ms", COLUMN_REAL, false, "whole step, 90th percentile"},                                                \
    {"host_step_ms", COLUMN_REAL, false, "launch to completion by the host's clock, median"},                          \
    {"host_step_mean_ms", COLUMN_REAL, false, "the same, mean; after too few warm-up steps it shows what they cost"},  \
    {"host_step_std_ms", COLUMN_REAL, false, "the same, standard deviation (n - 1)"},                                  \
    {"n_steps", COLUMN_INT, false, "measured steps"},                                                                  \
    {"step_j", COLUMN_REAL, false,                                                                                     \
     "energy of a step, launch to completion; nan where the measured steps take less than about 0.6 s"},               \
    {"tokens_per_j", COLUMN_REAL, false, "tokens of a step / step_j"}
#define MODEL_SUSTAIN_COLUMNS                                                                                          \
    {"sustain_s", COLUMN_REAL, false, "--sustain; the columns below cover its second half"},                           \
    {"sustained_step_ms", COLUMN_REAL, false, "step_ms in the steady state"},                                          \
    {"sustained_step_sm_mhz", COLUMN_REAL, false, "SM clock, median"},                                                 \
    {"sustained_step_power_w", COLUMN_REAL, false, "power, median"},                                                   \
    {"sustained_step_drift_pct", COLUMN_REAL, false,                                                                   \
     "by how much the last quarter of --sustain was slower than the one before: near 0 when the GPU has settled"}
#define MODEL_RATE_COLUMNS                                                                                             \
    {"tokens_per_s", COLUMN_REAL, true, "tokens of a step (of all its micro-batches) / step_ms"},                      \
    {"tflops", COLUMN_REAL, true, "FLOPs of the model (causal attention) / step_ms"},                                  \
    {"mfu_causal_pct", COLUMN_REAL, true, "tflops / peak of the GPU at the products' precision"},                      \
    {"mfu_full_pct", COLUMN_REAL, false, "the same with the whole S x S attention counted"},                           \
    {"hfu_pct", COLUMN_REAL, false, "as mfu_causal_pct, including what the backward recomputes"},                  \
    {"ceiling_pct", COLUMN_REAL, false, "tflops as a share of the best GEMM that bench_roofline measured; not of a float8 step"}
#define MODEL_FLOAT8_COLUMNS                                                                                           \
    {"fp8_share_pct", COLUMN_REAL, false, "share of the model's operations (causal attention) in float8"},             \
    {"mfu_bf16_pct", COLUMN_REAL, true,                                                                                \
     "mfu_causal_pct with all products at the peak of 16 bits: what rows of other precisions compare with"},           \
    {"speedup_bf16", COLUMN_REAL, true,                                                                                \
     "for float8 policies: step_ms of the same case in bf16, earlier in this run, / step_ms"},                         \
    {"fp8_pays", COLUMN_TEXT, false, "whether that is above 1: yes or no"}
#define MODEL_PEAK_OPTION(rates)                                                                                       \
    {"peak-tflops", OPTION_REAL, OPTION_SETTING, "0", .help = "dense peak of a GPU at this precision, for " rates, .max = 1e9,      \
     .unit = "TFLOP/s", .unset = "0: from the data sheet, if known"}
/* clang-format on */

/* n + 1 events, to be recorded around n calls; marks_end gives the milliseconds of each call (NULL: not wanted) and the events back. */
device_event **marks_begin(device *d, int n);
void marks_end(device *d, device_event **at, int n, double *ms);

enum { MODEL_FORWARD, MODEL_BACKWARD, MODEL_OPTIMIZER, MODEL_STEP, MODEL_PARTS };
typedef struct model_timed {
    double median_ms[MODEL_PARTS]; /* NAN for a part that the mode lacks */
    double first_ms;               /* the first step of this trainer, by the host's clock */
    double loss_first, loss_third; /* of these steps; NAN: there were fewer */
    double loss_last;              /* of the last measured one */
} model_timed;
/* Runs `warmup` steps and then --iters, and fills MODEL_STEP_COLUMNS. False after making the row `fail`, or `skip` where
 * the step cannot be captured as the graph that was asked for. */
bool model_time_steps(session *s, row *w, trainer *t, int warmup, model_timed *out);
/* With --sustain, last of all: fills MODEL_SUSTAIN_COLUMNS, or makes the row `fail`. Needs SESSION_SUSTAIN. */
void model_sustain(session *s, row *w, trainer *t);
double model_flops(const step_options *o, flops_convention as); /* of the model's step or forward */
/* --peak-tflops, else that of the data sheet; NAN: not known. */
double model_peak_of(const session *s, const step_options *o);
/* MODEL_RATE_COLUMNS; needs MODEL_PEAK_OPTION. */
void model_fill_rates(session *s, row *w, const step_options *o, double step_ms);
/* MODEL_FLOAT8_COLUMNS; remembers steps in bf16 for rows to come. `causal`: operations of the whole model for the tokens that `o`
 * has; `tflops`: what a rank does, as in mfu_causal_pct. */
void model_fill_float8(session *s, const bench_case *c, row *w, const step_options *o, double causal, double tflops,
                       double step_ms);
/* --peak-tflops is for one precision: false with a sentence when the cases have several. For bench_info.validate. */
bool model_peak_validate(const options *o, char *msg, size_t msg_bytes);
