/* SPDX-License-Identifier: MIT */
/* bench_transformer: how long does a training step of a whole transformer take, and what share of the GPU does it use?
 *
 * The `benchmarking_script` problem of Stanford's CS336, assignment 2: five sizes, contexts of 128 to 1024 tokens,
 * batch 4, forward, backward and AdamW separately, 5 warm-up steps and 10 measured ones; its warm-up study (--warmup
 * 0,1,2,5); and what a compiler gives (--variant all: an eager framework's ops, fused kernels, the step as one CUDA
 * graph).
 *
 * One row is one model, shape, policy, mode and fusion level. Steps are timed one by one, each waited for; tokens_per_s
 * and MFU come from the median step. MFU = FLOPs of the model / time / peak; formulas/model.h has the conventions.
 * Run: ./bench_transformer                                        the default grid
 *      ./bench_transformer --size xl --seq 512 --precision bf16   one model
 *      ./bench_transformer --size small --warmup 0,1,2,5          what warm-up does
 * Expect: small models are limited by launches unless they run as a graph; MFU grows with width and context. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/model/case.h"
#include "bench/model/context.h"
#include "bench/model/verify.h"
#include "common/core/error.h"
#include "common/session/ceiling.h"
#include "common/session/measure.h"

static const option_spec option_table[] = {
    MODEL_OPTIONS("small,medium,large,xl,2.7b", "tiny", "128,256,512,1024", "16,32", "fp32,bf16", "train-step"),
    {"warmup", OPTION_INT, OPTION_LIST, "5", NULL, 0, 1000000, NULL, "steps",
     "warm-up steps; 0: the very first step is measured, too"},
    {"variant", OPTION_CHOICE, OPTION_LIST, "graph", "kernels", 0, -1, FUSION_CHOICES, "",
     "fusion level; --list says what each is"},
    {"iters", OPTION_INT, 0, "10", NULL, 1, 1000000, NULL, "steps", "measured steps"},
    {"max-time", OPTION_REAL, 0, "0", NULL, 0, 86400, NULL, "s",
     "end early after this time, but not before 3 steps; 0: never"},
    {"timer", OPTION_CHOICE, 0, "auto", NULL, 0, -1, "auto|event|graph|host", "",
     "timer of opt_alone_ms; steps are timed by device events, on the CPU by the host's clock"},
    {"products", OPTION_FLAG, 0, "0", NULL, 0, 1, NULL, "",
     "print the matrix products of each case and the algorithm chosen for each"},
    {"retune", OPTION_FLAG, 0, "0", NULL, 0, 1, NULL, "",
     "time the algorithms of all matrix products again, whatever is shipped for this GPU or kept from earlier runs"},
    {"peak-tflops", OPTION_REAL, 0, "0", NULL, 0, 1e9, NULL, "TFLOP/s",
     "dense peak of the GPU at this precision, for MFU and HFU; 0: from the data sheet, if known"},
    {0}};

static const variant_spec variant_table[] = {
    {"none", "an eager framework's ops: one pass over memory each, launched from the host"},
    {"kernels", "fused kernels, launched from the host"},
    {"graph", "fused kernels, the step replayed as one CUDA graph"},
    {0}};

/* clang-format off */
#define PHASE_COLUMNS(part, what)                                            \
    {part "_ms", COLUMN_REAL, true, what ", median"},                        \
    {part "_mean_ms", COLUMN_REAL, false, what ", mean"},                    \
    {part "_std_ms", COLUMN_REAL, false, what ", standard deviation (n - 1)"}
/* clang-format on */

static const column_spec column_table[] = {
    PHASE_COLUMNS("fwd", "forward with the loss"),
    PHASE_COLUMNS("bwd", "backward, including the part of AdamW that runs beside it"),
    PHASE_COLUMNS("opt", "what remains of AdamW after backward"),
    PHASE_COLUMNS("step", "whole step on the device"),
    {"step_p10_ms", COLUMN_REAL, false, "whole step, 10th percentile"},
    {"step_p90_ms", COLUMN_REAL, false, "whole step, 90th percentile"},
    {"host_step_ms", COLUMN_REAL, false, "launch to completion by the host's clock, median"},
    {"host_step_mean_ms", COLUMN_REAL, false, "the same, mean; after too few warm-up steps it shows what they cost"},
    {"host_step_std_ms", COLUMN_REAL, false, "the same, standard deviation (n - 1)"},
    {"n_steps", COLUMN_INT, false, "measured steps"},
    {"first_step_ms", COLUMN_REAL, false, "the first step of this trainer, by the host's clock"},
    {"opt_alone_ms", COLUMN_REAL, false, "AdamW over all parameters with nothing beside it, median"},
    {"opt_tb_s", COLUMN_REAL, false, "its necessary traffic / opt_alone_ms, in 10^12 bytes per second"},
    {"tokens_per_s", COLUMN_REAL, true, "batch seq / step_ms"},
    {"tflops", COLUMN_REAL, true, "FLOPs of the model (causal attention) / step_ms"},
    {"mfu_causal_pct", COLUMN_REAL, true, "tflops / peak of the GPU at the products' precision"},
    {"mfu_full_pct", COLUMN_REAL, false, "the same with the whole S x S attention counted"},
    {"hfu_pct", COLUMN_REAL, false, "as mfu_causal_pct, including what the backward computes again"},
    {"ceiling_pct", COLUMN_REAL, false, "tflops as a share of the best GEMM that bench_roofline measured"},
    {"peak_bytes", COLUMN_INT, true, "device memory of the step: parameters, gradients, moments, activations, scratch"},
    {"overlap_used", COLUMN_TEXT, false, "what ran beside the backward; with --overlap auto, the fastest"},
    {"params", COLUMN_INT, false, "parameters of the model"},
    {"loss_first", COLUMN_REAL, false, "loss of the first step"},
    {"loss_last", COLUMN_REAL, false, "loss of the last measured step"},
    MODEL_ERROR_COLUMNS,
    {0}};

static bool validate(const options *o, char *msg, size_t msg_bytes)
{
    if (strcmp(option_text(o, "l2"), "cold") == 0) {
        snprintf(msg, msg_bytes, "--l2 cold says nothing about a whole step; only warm is allowed");
        return false;
    }
    if (option_real(o, "peak-tflops") > 0 && option_count(o, "precision") > 1) {
        snprintf(msg, msg_bytes, "--peak-tflops is the peak of one precision, and --precision has %zu",
                 option_count(o, "precision"));
        return false;
    }
    return model_options_validate(o, msg, msg_bytes);
}

static const bench_info info = {
    .name = "bench_transformer",
    .summary = "How long does a training step of a transformer take, and what share of the GPU does it use?",
    .notes =
        "One row is one model, shape, precision, mode and fusion level. Parameters and tokens are random, from\n"
        "--seed. A slice of the model (at most two blocks, about 2048 tokens) is compared with plain fp32 before\n"
        "anything is timed; products are tuned before the first step. opt_ms is the part of AdamW that runs after\n"
        "the backward; with --overlap all the rest runs beside it, and auto measures which is fastest.\n"
        "MFU counts 6 N T + 6 L S d T operations per step (causal) or 12 L S d T (full), N without embedding and\n"
        "norms; a forward alone a third. It is nan for a GPU whose peak is not known; --peak-tflops gives it.\n"
        "precision: fp32, tf32 (products with 10 mantissa bits), bf16 (fp32 master weights and moments),\n"
        "bf16-pure (bf16 everywhere), fp16 (fp32 master weights, dynamic loss scale).",
    .examples = "./bench_transformer --size xl --seq 512 --precision bf16\n"
                "./bench_transformer --size small,2.7b --seq 512 --variant all\n"
                "./bench_transformer --size xl --seq 1024 --precision bf16 --products\n"
                "./bench_transformer --size small --seq 128 --warmup 0,1,2,5\n"
                "./bench_transformer --size medium --layers 2,4,8,16,32 --precision bf16\n"
                "./bench_transformer --size small --d-model 512,1024,2048,4096 --layers 4 --precision bf16",
    .options = option_table,
    .variants = variant_table,
    .columns = column_table,
    .validate = validate,
    .order = 40,
    .small = "--size tiny --seq 16,32 --batch 2 --iters 3 --warmup 1",
    .full =
        (const char *const[]){
            "--precision fp32 --fp32-products split",
            "--size small,medium,large,xl,2.7b --seq 512 --precision bf16 --variant none,kernels",
            "--size small --seq 128 --precision bf16 --warmup 0,1,2",
            "--size medium --layers 2,4,8,16,32 --seq 512 --precision bf16",
            "--size small --layers 4 --d-model 512,1024,2048,4096 --seq 512 --precision bf16",
            "--size medium --batch 1,2,8,16 --seq 512 --precision bf16",
            "--size medium --batch 1 --seq 2048,4096,8192,16384,32768 --precision bf16 --recompute none,block",
            "--size 2.7b --seq 1024 --precision bf16 --recompute selective,attn,mlp,block",
            "--size 10b --seq 512,1024 --precision bf16-pure --recompute block",
            "--size 8b --seq 1024 --batch 1 --precision bf16 --recompute block", NULL},
    .section = "transformer",
    .figures = (const char *const[]){"transformer_time", "transformer_mfu", "transformer_speedup", "transformer_fusion",
                                     "transformer_scaling", "transformer_warmup", NULL},
};

/* A trainer, and what its first step says. */
typedef struct stepper {
    trainer *t;
    double first_ms, loss_first;
} stepper;

enum { FORWARD, BACKWARD, OPTIMIZER, STEP, PARTS };

static bool step_enqueue(void *arg)
{
    return trainer_step(((stepper *)arg)->t);
}

static void step_wait(void *arg, double *ms)
{
    const step_times x = trainer_times(((stepper *)arg)->t);
    ms[FORWARD] = x.forward;
    ms[BACKWARD] = x.backward;
    ms[OPTIMIZER] = x.optimizer;
    ms[STEP] = x.step;
}

static void step_first(void *arg, double host_ms)
{
    stepper *st = arg;
    st->first_ms = host_ms;
    st->loss_first = trainer_loss(st->t);
}

static void fill_rates(session *s, row *w, const trainer_options *o, double step_ms)
{
    const transformer_shape shape = model_shape(o);
    const char *dtype = model_product_dtype(o);
    const bool forward = o->mode == STEP_FORWARD;
    const double causal =
        forward ? transformer_forward_flops(&shape, FLOPS_CAUSAL) : transformer_step_flops(&shape, FLOPS_CAUSAL);
    const double full =
        forward ? transformer_forward_flops(&shape, FLOPS_FULL) : transformer_step_flops(&shape, FLOPS_FULL);
    const double done = causal + transformer_repeated_flops(&shape, model_repeats(o), FLOPS_CAUSAL);
    const double given = option_real(s->opt, "peak-tflops");
    const double peak = given > 0 ? given : peak_tflops(device_get_info(s->dev)->name, dtype);
    const double to_tflops = 1 / (step_ms * 1e9);
    row_real(w, "tokens_per_s", transformer_tokens(&shape) / (step_ms * 1e-3));
    row_real(w, "tflops", causal * to_tflops);
    row_real(w, "mfu_causal_pct", 100 * causal * to_tflops / peak);
    row_real(w, "mfu_full_pct", 100 * full * to_tflops / peak);
    row_real(w, "hfu_pct", 100 * done * to_tflops / peak);
    row_real(w, "ceiling_pct", 100 * causal * to_tflops / ceiling_tflops(s, s->results_dir, dtype));
}

static bool run_optimizer(void *arg)
{
    return trainer_optimizer(arg);
}

/* AdamW alone: over all parameters, with the gradients of the last step. Changes the parameters. */
static bool time_optimizer(session *s, trainer *t, row *w)
{
    measure_how how = measure_default(s);
    how.timing.warmup = 3;
    double ms;
    if (!measure_with(s, w, "opt_alone", &how, run_optimizer, t, &ms))
        return false;
    row_real(w, "opt_tb_s", trainer_optimizer_bytes(t) / (ms * 1e9));
    return true;
}

/* The loss must be a number, and where parameters do not change every step must give the same. */
static bool loss_is_sound(session *s, const trainer_options *o, double first, double last, row *w)
{
    if (!option_flag(s->opt, "check"))
        return true;
    const double moved = fabs(last - first) / fabs(first);
    const bool sound = isfinite(last) && (o->mode == STEP_TRAIN || moved <= 1e-5);
    if (!sound)
        row_status_set(w, ROW_FAIL, "loss is %.9g after the first step and %.9g after the last%s", first, last,
                       o->mode == STEP_TRAIN ? "" : ", though parameters did not change");
    return sound;
}

static void time_case(session *s, const bench_case *c, trainer *t, row *w)
{
    const trainer_options *o = trainer_options_of(t);
    const fusion asked = o->fusion; /* the trainer gives up a graph that it cannot capture */
    const char *const names[PARTS] = {[FORWARD] = "fwd",
                                      [BACKWARD] = o->mode == STEP_FORWARD ? NULL : "bwd",
                                      [OPTIMIZER] = o->mode == STEP_TRAIN ? "opt" : NULL,
                                      [STEP] = "step"};
    const measure_step step = {.names = names,
                               .parts = PARTS,
                               .host_name = "host_step",
                               .warmup = (int)case_int(c, "warmup"),
                               .enqueue = step_enqueue,
                               .wait = step_wait,
                               .first = step_first};
    stepper st = {.t = t};
    measured_steps m;
    if (!measure_steps(s, w, &step, &st, &m)) {
        row_status_set(w, ROW_FAIL, "step: %s", sb_last_message());
        return;
    }
    if (o->fusion != asked) {
        row_status_set(w, ROW_SKIP, "the step cannot be captured as a graph");
        return;
    }
    const double loss_last = trainer_loss(t);
    if (!loss_is_sound(s, o, st.loss_first, loss_last, w))
        return;
    row_real(w, "first_step_ms", st.first_ms);
    row_real(w, "loss_first", st.loss_first);
    row_real(w, "loss_last", loss_last);
    fill_rates(s, w, o, m.median_ms[STEP]);
    row_int(w, "peak_bytes", trainer_memory_of(t).allocated);
    row_text(w, "overlap_used", overlap_name(trainer_overlap(t)));
    row_int(w, "params", model_parameters(&o->config));
    if (o->mode == STEP_TRAIN && !time_optimizer(s, t, w))
        row_status_set(w, ROW_FAIL, "AdamW alone: %s", sb_last_message());
}

static void run(session *s, const bench_case *c, row *w)
{
    trainer_options o;
    char why[256];
    if (!model_case_options(c, &o, why, sizeof why)) {
        row_status_set(w, ROW_SKIP, "%s", why);
        return;
    }
    o.fusion = fusion_parse(case_variant(c));
    if (o.fusion == FUSION_GRAPH && device_kind_of(s->dev) == DEVICE_CPU) {
        row_status_set(w, ROW_SKIP, "the CPU has no graphs; --variant kernels is the same there");
        return;
    }
    if (!model_verify(s, &o, w))
        return;
    phase_set("setup of %s", case_key(c));
    trainer *t = model_trainer(s, &o, w);
    if (!t)
        return;
    if (option_flag(s->opt, "products"))
        model_print_products(t);
    time_case(s, c, t, w);
    trainer_free(t);
}

static void start(session *s)
{
    (option_flag(s->opt, "retune") ? model_start_anew : model_start)(s);
}

int main(int argc, char **argv)
{
    const session_hooks hooks = {start, run, model_finish, model_case_estimate};
    return session_main(&info, &hooks, argc, argv);
}
