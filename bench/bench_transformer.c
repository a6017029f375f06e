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
 * Expect: small models are limited by launches unless they run as a graph; MFU grows with width and context. */
#include <stdio.h>
#include <string.h>

#include "bench/model/case.h"
#include "bench/model/cold.h"
#include "bench/model/context.h"
#include "bench/model/timing.h"
#include "bench/model/verify.h"
#include "common/core/error.h"
#include "common/session/measure.h"
#include "common/train/update.h"

static const option_spec option_table[] = {
    MODEL_OPTIONS("small,medium,large,xl,2.7b", "tiny", "128,256,512,1024", "16,32", "fp32,bf16", "train-step"),
    MODEL_UPDATE_OPTIONS(", with the update after the backward"),
    {"warmup", OPTION_INT, OPTION_LIST, "5", .help = "warm-up steps; 0: the very first step is measured as well",
     .max = 1000000, .unit = "steps"},
    {"variant", OPTION_CHOICE, OPTION_LIST, "graph", .help = "fusion level; --list says what each is",
     .def_cpu = "kernels", .choices = FUSION_CHOICES},
    {"iters", OPTION_INT, 0, "10", .help = "measured steps", .min = 1, .max = 1000000, .unit = "steps"},
    {"max-time", OPTION_REAL, 0, "0", .help = "end early after this time, but not before 3 steps", .max = 86400,
     .unit = "s", .unset = "0: never"},
    {"timer", OPTION_CHOICE, 0, "auto",
     .help = "timer of opt_alone_ms; steps are timed by device events, on the CPU by the host's clock",
     .choices = "auto|event|graph|host"},
    {"cold", OPTION_FLAG, OPTION_PARAM, "0",
     .help = "run each case in a process of its own, whose first step nothing precedes: products are not "
             "tuned, and the check comes last"},
    {"products", OPTION_FLAG, 0, "0",
     .help = "print the matrix products of each case and the algorithm chosen for each"},
    {"retune", OPTION_FLAG, 0, "0",
     .help = "time the algorithms of all matrix products again, even where choices are shipped for this GPU or "
             "kept from earlier runs"},
    {"plant-error", OPTION_CHOICE, OPTION_SETTING, "none",
     .help = "test the check of float8 by a fault: weights cast only in the first step; a transposed copy that is not "
             "transposed; products without the scale of A; largest magnitudes of the step before, or a quarter of what "
             "they are; codes read as the other format; casts of what a norm, RoPE or SwiGLU reads, not of its result",
     .choices = FLOAT8_FAULT_CHOICES},
    MODEL_PEAK_OPTION("MFU and HFU"),
    SESSION_SUSTAIN,
    {0}};

static const variant_spec variant_table[] = {
    {"none", "an eager framework's ops: one pass over memory each, launched from the host"},
    {"kernels", "fused kernels, launched from the host"},
    {"graph", "fused kernels, the step replayed as one CUDA graph"},
    {0}};

static const column_spec column_table[] = {
    MODEL_STEP_COLUMNS,
    {"first_step_ms", COLUMN_REAL, false, "the first step of this trainer, by the host's clock"},
    {"opt_alone_ms", COLUMN_REAL, false, "AdamW over all parameters with nothing else running, median"},
    {"opt_alone_p10_ms", COLUMN_REAL, false, "10th percentile of it"},
    {"opt_alone_p90_ms", COLUMN_REAL, false, "90th percentile of it"},
    {"opt_tb_s", COLUMN_REAL, false, "its necessary traffic / opt_alone_ms, in 10^12 bytes per second"},
    MODEL_RATE_COLUMNS,
    MODEL_FLOAT8_COLUMNS,
    MODEL_SUSTAIN_COLUMNS,
    {"peak_bytes", COLUMN_INT, true, "device memory of the step: parameters, gradients, moments, activations, scratch"},
    {"init_bytes", COLUMN_INT, false,
     "bytes of these that are held before the first step: parameters, master weights and moments"},
    {"offloaded_bytes", COLUMN_INT, false, "bytes that go to the host's memory in a step and come back"},
    {"offload_exposed_ms", COLUMN_REAL, false,
     "how long the last step, or its last micro-batch, waited for these copies"},
    {"overlap_used", COLUMN_TEXT, false, "what ran during the backward; with --overlap auto, the fastest"},
    {"params", COLUMN_INT, false, "parameters of the model"},
    {"loss_first", COLUMN_REAL, false, "loss of the first step"},
    {"loss_third", COLUMN_REAL, false, "loss of the third step, after two updates"},
    {"loss_last", COLUMN_REAL, false, "loss of the last measured step"},
    MODEL_ERROR_COLUMNS,
    {0}};

static bool validate(const options *o, char *msg, size_t msg_bytes)
{
    if (strcmp(option_text(o, "l2"), "cold") == 0) {
        snprintf(msg, msg_bytes, "--l2 cold says nothing about a whole step; only warm is allowed");
        return false;
    }
    return model_peak_validate(o, msg, msg_bytes) && model_options_validate(o, msg, msg_bytes);
}

static const bench_run run_table[] = {
    {RUN_QUICK, 1, 10, "--size small,xl --seq 512 --precision bf16"},
    {RUN_QUICK, 1, 5, "--size small --seq 512 --precision bf16 --variant none,kernels"},
    {RUN_QUICK, 1, 5, "--size small --seq 128 --precision fp32"},
    {RUN_QUICK, 1, 10, "--size small --seq 128 --precision bf16 --cold 1 --warmup 0,1,2,5"},
    {RUN_DEFAULT, 1, 50, "--size small,medium,large,xl --precision bf16"},
    {RUN_DEFAULT, 1, 30, "--size 2.7b --seq 128,512,1024,2048 --precision bf16"},
    {RUN_DEFAULT, 1, 74, "--seq 128,512 --precision fp32"},
    {RUN_FULL, 1, 110, "--seq 256,1024 --precision fp32"},
    {RUN_QUICK, 1, 6, "--size small --seq 512 --precision bf16 --profile"},
    {RUN_DEFAULT, 1, 18, "--size small,xl --seq 512 --precision bf16 --mode forward,train-step --profile"},
    /* Alone, each op can be compared with its bound. */
    {RUN_FULL, 1, 32, "--size xl --seq 1024 --precision bf16 --moments policy,bf16 --overlap none --profile"},
    {RUN_FULL, 1, 40, "--size 2.7b --seq 1024,2048 --precision bf16 --overlap none --profile"},
    {RUN_FULL, 1, 9, "--size small --seq 128,512 --precision bf16 --overlap none --profile"},
    {RUN_FULL, 1, 200, "--precision fp32 --fp32-products fp16x3,fp16x3-fast"},
    {RUN_DEFAULT, 1, 9, "--size small,xl --seq 512 --precision tf32"},
    {RUN_DEFAULT, 1, 11, "--size xl --seq 512,1024 --precision bf16 --moments bf16"},
    {RUN_FULL, 1, 10, "--size small --seq 512,1024 --precision bf16 --moments bf16"},
    {RUN_FULL, 1, 75, "--size xl --seq 1024 --precision bf16 --sustain 60"},
    {RUN_FULL, 1, 80, "--size 2.7b --seq 2048 --precision bf16 --sustain 60"},
    {RUN_DEFAULT, 1, 69, "--seq 512 --mode forward,forward-backward"},
    {RUN_DEFAULT, 1, 32, "--seq 512 --precision bf16 --variant none,kernels"},
    {RUN_DEFAULT, 1, 18, "--size small,xl --seq 128 --precision bf16 --cold 1 --warmup 0,1,2,5"},
    {RUN_FULL, 1, 30, "--size medium,large,2.7b --seq 128 --precision bf16 --cold 1 --warmup 0,1,2,5"},
    {RUN_DEFAULT, 1, 38, "--size xl --seq 1024 --precision bf16,fp8-tensorwise,fp8-block-dw2d,fp8-delayed"},
    {RUN_FULL, 1, 31, "--size xl --seq 1024 --precision bf16,fp8-rowwise,fp8-rowwise-dw16,fp8-block"},
    {RUN_FULL, 1, 115,
     "--size 2.7b --seq 2048 --precision "
     "bf16,fp8-tensorwise,fp8-rowwise,fp8-rowwise-dw16,fp8-block,fp8-block-dw2d,fp8-delayed"},
    {RUN_FULL, 1, 40,
     "--size small --seq 2048 --precision "
     "bf16,fp8-tensorwise,fp8-rowwise,fp8-rowwise-dw16,fp8-block,fp8-block-dw2d,fp8-delayed"},
    /* Feature by feature: the rows that the runs above do not have. */
    {RUN_DEFAULT, 1, 14, "--size xl --seq 512 --precision fp32,bf16 --attention unfused --variant none"},
    {RUN_FULL, 1, 60,
     "--size small,medium,large,xl,2.7b --seq 512 --precision fp32,bf16 --attention unfused --variant none"},
    {RUN_DEFAULT, 1, 20, "--size xl --seq 512 --precision bf16 --recompute selective,attn,mlp,block"},
    {RUN_FULL, 1, 14, "--size small,xl --seq 512,1024 --precision bf16-pure"},
    {RUN_FULL, 1, 8, "--size xl --seq 512 --precision bf16 --offload block"},
    {RUN_FULL, 1, 40, "--size mlp-1024,mlp-4096 --seq 1024 --precision fp32,bf16,bf16-pure --variant all"},
    {RUN_FULL, 1, 12, "--size mlp-1024,mlp-4096 --seq 1024 --precision bf16 --recompute mlp,block"},
    {RUN_FULL, 1, 12, "--size xl --batch 2 --seq 512 --precision bf16 --micro-batches 1,2,4 --clip 0,1"},
    /* One dimension at a time. */
    {RUN_DEFAULT, 1, 8, "--size medium --layers 2,4,8,16,32 --seq 512 --precision bf16"},
    {RUN_DEFAULT, 1, 10, "--size small --layers 4 --d-model 512,768,1024,2048,4096 --seq 512 --precision bf16"},
    {RUN_DEFAULT, 1, 9, "--size small --layers 4 --d-model 1000,1200,1400 --heads 25 --seq 512 --precision bf16"},
    {RUN_FULL, 1, 60, "--size small --layers 4 --d-model 8192,16384 --seq 512 --precision bf16"},
    {RUN_FULL, 1, 7, "--size small --vocab 50257,50304 --seq 512 --precision bf16"},
    {RUN_DEFAULT, 1, 12, "--size medium --batch 1,2,8,16 --seq 512 --precision bf16"},
    {RUN_DEFAULT, 1, 9, "--size medium --heads-kv 1,4,16 --batch 2 --seq 2048 --precision bf16"},
    {RUN_FULL, 1, 10, "--size medium --heads-kv 2,8 --batch 2 --seq 2048 --precision bf16"},
    {RUN_DEFAULT, 1, 30, "--size medium --batch 1 --seq 512:8192:*2 --precision bf16 --recompute none,block"},
    {RUN_FULL, 1, 100, "--size medium --batch 1 --seq 16384:65536:*2 --precision bf16 --recompute none,block"},
    /* Shares of the peak at one width. */
    {RUN_FULL, 1, 80,
     "--size 8b --vocab 10000 --layers 4,8 --seq 512,4096 --heads-kv 8,32 --recompute none,block --precision bf16"},
    {RUN_FULL, 1, 12,
     "--size 8b --vocab 10000 --layers 4 --seq 512,4096 --heads-kv 32 --attention unfused --precision bf16"},
    {RUN_DEFAULT, 1, 11, "--size 8b --seq 1024 --batch 1 --precision bf16 --recompute block"},
    {RUN_FULL, 1, 45, "--size 2.7b --seq 1024 --precision bf16 --recompute selective,attn,mlp,block"},
    {RUN_FULL, 1, 60, "--size 10b --seq 512,1024 --precision bf16-pure --recompute block"},
    {RUN_FULL, 1, 90, "--size 8b --seq 32768 --batch 1 --precision bf16 --recompute block --loss-chunk 4096"},
    /* As many blocks of Llama 3's as one GPU of 80 GB holds, and all 32. */
    {RUN_FULL, 1, 70,
     "--size llama3-8b --layers 16,32 --seq 8192 --batch 1 --precision bf16,fp8-tensorwise --recompute mlp "
     "--loss-chunk 4096"},
    /* The planner goes by these (bench_mesh --variant measured). */
    {RUN_DEFAULT, 2, 24, "--size 2.7b --seq 2048 --batch 1,2,4 --precision bf16-pure --overlap none"},
    {RUN_FULL, 2, 8, "--size 2.7b --seq 1024 --batch 1 --precision bf16-pure --overlap none"},
    /* Gradients that products add up, beside those of one micro-batch. */
    {RUN_FULL, 1, 24,
     "--size 2.7b --seq 1024 --batch 4 --precision bf16-pure --grad-dtype fp32 --micro-batches 1,8 --overlap none "
     "--iters 6"},
    {RUN_FULL, 2, 30, "--size 8b --layers 8 --seq 4096 --batch 1,2,4 --precision bf16-pure --overlap none"},
    {RUN_HEADLINE, 1, 10, "--size xl --seq 1024 --precision bf16"},
    {RUN_HEADLINE, 1, 12, "--size 2.7b --seq 2048 --precision bf16"},
    {RUN_CPU, 0, 5, ""},
    {RUN_CPU, 0, 5, "--seq 32 --attention unfused,flash --variant none,kernels --recompute none,block"},
    {RUN_CPU, 0, 3, "--seq 32 --precision fp32 --heads-kv 1,2,4"},
    {0}};

static const bench_info info = {
    .name = "bench_transformer",
    .summary = "How long does a training step of a transformer take, and what share of the GPU does it use?",
    .notes =
        "One row is one model, shape, precision, mode and fusion level. Parameters and tokens are random, from\n"
        "--seed. A slice of the model (at most two blocks, about 2048 tokens) is compared with plain fp32 before\n"
        "anything is timed; products are tuned before the first step. opt_ms is the part of AdamW that runs after\n"
        "the backward; with --overlap all, the rest runs during it, and auto measures which is fastest.\n"
        "MFU counts 6 N T + 6 L S d T operations per step (causal) or 12 L S d T (full), N without embedding and\n"
        "norms; a third of that for a forward. Without a known peak of the GPU it is nan; --peak-tflops gives one.\n"
        "precision: fp32, tf32 (products with 10 mantissa bits), bf16 (fp32 master weights and moments),\n"
        "bf16-pure (bf16 everywhere), fp16 (fp32 master weights, dynamic loss scale), fp8-tensorwise, fp8-rowwise,\n"
        "fp8-rowwise-dw16, fp8-block, fp8-block-dw2d, fp8-delayed and, on the CPU, fp8-mx: bf16 with the products of\n"
        "the blocks in float8 (docs/float8.md). Name bf16 before them: speedup_bf16 compares with the same case\n"
        "of the same run.\n"
        "--moments bf16 rounds the second moment stochastically, so that it can fall by a thousandth in a step.\n"
        "Forwards and backwards of several micro-batches alternate, so that fwd_ms and bwd_ms are nan.",
    .examples = "./bench_transformer --size xl --seq 512 --precision bf16\n"
                "./bench_transformer --size small,2.7b --seq 512 --variant all\n"
                "./bench_transformer --size xl --seq 1024 --precision bf16 --products\n"
                "./bench_transformer --size xl --seq 1024 --precision bf16 --moments fp32,bf16\n"
                "./bench_transformer --size xl --seq 512 --precision bf16 --micro-batches 1,4 --clip 1\n"
                "./bench_transformer --size xl --seq 1024 --precision bf16,fp8-tensorwise,fp8-rowwise,fp8-block\n"
                "./bench_transformer --size small --seq 128 --cold 1 --warmup 0,1,2,5\n"
                "./bench_transformer --size medium --layers 2,4,8,16,32 --precision bf16\n"
                "./bench_transformer --size small --d-model 512,1024,2048,4096 --layers 4 --precision bf16\n"
                "./bench_transformer --size medium --heads-kv 1,4,16 --seq 2048 --precision bf16",
    BENCH_TABLES,
    .validate = validate,
    .order = 40,
    .small = "--size tiny --seq 16,32 --batch 2 --iters 3 --warmup 1",
    .section = "transformer",
    .figures = (const char *const[]){"transformer_time", "transformer_mfu", "transformer_speedup", "transformer_fusion",
                                     "transformer_float8", "scaling", "width", "transformer_warmup", "ladder", NULL},
};

static bool run_optimizer(void *arg)
{
    return trainer_optimizer(arg);
}

/* AdamW alone: over all parameters, with the gradients of the last step. Changes the parameters. */
static bool time_optimizer(session *s, trainer *t, row *w)
{
    measure_how how = measure_default(s);
    how.timing.warmup = 3;
    how.timing.settle_s = 0; /* steps came before it */
    double ms;
    if (!measure_with(s, w, "opt_alone", &how, run_optimizer, t, &ms))
        return false;
    row_real(w, "opt_tb_s", trainer_optimizer_bytes(t) / (ms * 1e9));
    return true;
}

static int64_t bytes_before_steps(const trainer *t)
{
    const trainer_memory m = trainer_memory_of(t);
    return m.resident[MEMORY_PARAM] + m.resident[MEMORY_MASTER] + m.resident[MEMORY_MOMENT1] +
           m.resident[MEMORY_MOMENT2];
}

static void time_case(session *s, const bench_case *c, trainer *t, row *w)
{
    const step_options *o = trainer_options_of(t);
    model_timed m;
    if (!model_time_steps(s, w, t, (int)case_int(c, "warmup"), &m))
        return;
    row_real(w, "first_step_ms", m.first_ms);
    row_real(w, "loss_first", m.loss_first);
    row_real(w, "loss_third", m.loss_third);
    row_real(w, "loss_last", m.loss_last);
    const double flops = model_flops(o, FLOPS_CAUSAL), step_ms = m.median_ms[MODEL_STEP];
    model_fill_rates(s, w, o, step_ms);
    model_fill_float8(s, c, w, o, flops, flops / (step_ms * 1e9), step_ms);
    row_int(w, "peak_bytes", trainer_memory_of(t).allocated);
    row_int(w, "init_bytes", bytes_before_steps(t));
    row_int(w, "offloaded_bytes", trainer_offloaded_bytes(t) * step_micro_batches(o));
    row_real(w, "offload_exposed_ms", trainer_offload_exposed_ms(t));
    row_text(w, "overlap_used", overlap_name(trainer_overlap(t)));
    row_int(w, "params", model_parameters(&o->config));
    if (o->mode == STEP_TRAIN && !time_optimizer(s, t, w))
        row_status_set(w, ROW_FAIL, "AdamW alone: %s", sb_last_message());
    else
        model_sustain(s, w, t);
}

static void transformer_run(session *s, const bench_case *c, row *w)
{
    step_options o;
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
    if (!float8_fault_fits(((model_bench *)s->user)->planted, &o)) {
        row_status_set(w, ROW_SKIP, "this step has nothing that --plant-error %s breaks",
                       option_text(s->opt, "plant-error"));
        return;
    }
    const bool cold = option_flag(s->opt, "cold");
    if (!cold && !model_verify(s, &o, w))
        return;
    phase_set("setup of %s", case_name(c));
    trainer *t = cold ? model_trainer_untuned(s, &o, w) : model_trainer(s, &o, w);
    if (!t)
        return;
    if (option_flag(s->opt, "products"))
        model_print_products(t);
    time_case(s, c, t, w);
    trainer_free(t);
    if (cold && row_status_get(w) == ROW_OK) {
        memory_release_all(s->mem);
        model_verify(s, &o, w);
    }
}

static void start(session *s)
{
    (option_flag(s->opt, "retune") ? model_start_anew : model_start)(s);
    model_float8_gate(s);
    ((model_bench *)s->user)->planted = (float8_fault)option_choice(s->opt, "plant-error");
}

int main(int argc, char **argv)
{
    const session_hooks hooks = {start, transformer_run, model_finish, model_case_estimate};
    options *o = session_options(&info, argc, argv);
    const bool asks = option_flag(o, "dry-run") || option_flag(o, "where");
    const bool apart = option_flag(o, "cold") && cases_count(o) > 1 && !asks;
    const int code = apart ? cold_run_cases(o, argc, argv) : session_main(&info, &hooks, argc, argv);
    options_free(o);
    return code;
}
