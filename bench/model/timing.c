/* SPDX-License-Identifier: MIT */
/* Whole steps, timed one by one and each waited for; see timing.h. */
#include "bench/model/timing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/beside.h"
#include "bench/model/case.h"
#include "common/core/error.h"
#include "common/session/ceiling.h"
#include "common/session/measure.h"

/* ---- calls back to back ---- */

device_event **marks_begin(device *d, int n)
{
    device_event **at = xcalloc((size_t)n + 1, sizeof *at);
    for (int i = 0; i <= n; i++)
        at[i] = device_event_create(d);
    return at;
}

void marks_end(device *d, device_event **at, int n, double *ms)
{
    for (int i = 0; i < n && ms; i++)
        ms[i] = device_event_ms(d, at[i], at[i + 1]);
    for (int i = 0; i <= n; i++)
        device_event_destroy(d, at[i]);
    free(at);
}

/* ---- steps of a trainer ---- */

/* A trainer, and what its first steps say. */
typedef struct stepper {
    trainer *t;
    double first_ms, loss[MEASURE_EARLY];
} stepper;

static bool step_enqueue(void *arg)
{
    return trainer_step(((stepper *)arg)->t);
}

static void step_wait(void *arg, double *ms)
{
    const step_times x = trainer_times(((stepper *)arg)->t);
    ms[MODEL_FORWARD] = x.forward;
    ms[MODEL_BACKWARD] = x.backward;
    ms[MODEL_OPTIMIZER] = x.optimizer;
    ms[MODEL_STEP] = x.step;
}

static void step_early(void *arg, int i, double host_ms)
{
    stepper *st = arg;
    if (i == 0)
        st->first_ms = host_ms;
    st->loss[i] = trainer_loss(st->t);
}

/* The loss must be a number, and where parameters do not change every step must give the same. */
static bool loss_is_sound(session *s, const step_options *o, double first, double last, row *w)
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

bool model_time_steps(session *s, row *w, trainer *t, int warmup, model_timed *out)
{
    const step_options *o = trainer_options_of(t);
    const transformer_shape shape = model_shape(o);
    const fusion asked = o->fusion; /* the trainer gives up a graph that it cannot capture */
    const char *names[MODEL_PARTS] = {[MODEL_FORWARD] = "fwd",
                                      [MODEL_BACKWARD] = o->mode == STEP_FORWARD ? NULL : "bwd",
                                      [MODEL_OPTIMIZER] = o->mode == STEP_TRAIN ? "opt" : NULL,
                                      [MODEL_STEP] = "step"};
    if (o->micro_batches > 1) /* their forwards and backwards alternate */
        names[MODEL_FORWARD] = names[MODEL_BACKWARD] = NULL;
    const measure_step step = {.names = names,
                               .parts = MODEL_PARTS,
                               .host_name = "host_step",
                               .warmup = warmup,
                               .enqueue = step_enqueue,
                               .wait = step_wait,
                               .early = step_early};
    stepper st = {.t = t, .loss = {NAN, NAN, NAN}};
    measured_steps m;
    if (!measure_steps(s, w, &step, &st, &m)) {
        row_status_set(w, ROW_FAIL, "step: %s", sb_last_message());
        return false;
    }
    if (o->fusion != asked) {
        row_status_set(w, ROW_SKIP, "the step cannot be captured as a graph");
        return false;
    }
    *out = (model_timed){.first_ms = st.first_ms,
                         .loss_first = st.loss[0],
                         .loss_third = st.loss[MEASURE_EARLY - 1],
                         .loss_last = trainer_loss(t)};
    memcpy(out->median_ms, m.median_ms, sizeof out->median_ms);
    row_real(w, "tokens_per_j", transformer_tokens(&shape) / m.step_j);
    return loss_is_sound(s, o, out->loss_first, out->loss_last, w);
}

void model_sustain(session *s, row *w, trainer *t)
{
    const measure_step step = {.parts = MODEL_PARTS, .enqueue = step_enqueue, .wait = step_wait};
    stepper st = {.t = t};
    measured_steps m;
    row_real(w, "sustain_s", s->sustain_s);
    if (!measure_steps_sustained(s, w, &step, MODEL_STEP, &st, &m))
        row_status_set(w, ROW_FAIL, "sustained step: %s", sb_last_message());
}

/* The GEMMs of this run that a step's products and attention are compared with; bench_roofline has none of float8. What the
 * CPU makes of fp32 are plain products. */
static double ceiling_of(const session *s, const step_options *o)
{
    if (o->precision->float8)
        return NAN;
    const transformer_shape shape = model_shape(o);
    const bool plain = device_kind_of(s->dev) == DEVICE_CPU && o->precision->compute == SB_FP32;
    const char *products = plain ? "fp32" : model_product_dtype(o),
               *attention = plain ? "fp32" : model_attention_dtype(o);
    return transformer_peak_tflops(&shape, ceiling_tflops(s, s->results_dir, products),
                                   ceiling_tflops(s, s->results_dir, attention));
}

double model_flops(const step_options *o, flops_convention as)
{
    const transformer_shape shape = model_shape(o);
    return o->mode == STEP_FORWARD ? transformer_forward_flops(&shape, as) : transformer_step_flops(&shape, as);
}

double model_peak_of(const session *s, const step_options *o)
{
    const double given = option_real(s->opt, "peak-tflops");
    return given > 0 ? given : model_peak_tflops(o, device_get_info(s->dev)->name);
}

void model_fill_rates(session *s, row *w, const step_options *o, double step_ms)
{
    const transformer_shape shape = model_shape(o);
    const double causal = model_flops(o, FLOPS_CAUSAL), full = model_flops(o, FLOPS_FULL);
    const double done = causal + transformer_repeated_flops(&shape, model_repeats(o), FLOPS_CAUSAL);
    const double peak = model_peak_of(s, o);
    const double to_tflops = 1 / (step_ms * 1e9);
    row_real(w, "tokens_per_s", transformer_tokens(&shape) / (step_ms * 1e-3));
    row_real(w, "tflops", causal * to_tflops);
    row_real(w, "mfu_causal_pct", 100 * causal * to_tflops / peak);
    row_real(w, "mfu_full_pct", 100 * full * to_tflops / peak);
    row_real(w, "hfu_pct", 100 * done * to_tflops / peak);
    row_real(w, "ceiling_pct", 100 * causal * to_tflops / ceiling_of(s, o));
}

/* ---- float8 beside bf16 ---- */

void model_fill_float8(session *s, const bench_case *c, row *w, const step_options *o, double causal, double tflops,
                       double step_ms)
{
    const transformer_shape shape = model_shape(o);
    const double products =
        2 * transformer_matmul_parameters(&shape) * transformer_tokens(&shape) * (o->mode == STEP_FORWARD ? 1 : 3);
    row_real(w, "fp8_share_pct", 100 * model_float8_share(o) * products / causal);
    row_real(w, "mfu_bf16_pct", 100 * tflops / model_peak16_tflops(o, device_get_info(s->dev)->name));
    const double gain = 1 / of_bf16(s, c, "step_ms", step_ms);
    if (!o->precision->float8)
        return;
    row_real(w, "speedup_bf16", gain);
    row_text(w, "fp8_pays", gain > 1 ? "yes" : gain <= 1 ? "no" : "");
}

bool model_peak_validate(const options *o, char *msg, size_t msg_bytes)
{
    static const char *const kinds[] = {"precision", "fp32-products"};
    for (size_t i = 0; i < 2; i++)
        if (option_real(o, "peak-tflops") > 0 && option_count(o, kinds[i]) > 1) {
            snprintf(msg, msg_bytes, "--peak-tflops is the peak of one kind of products, and --%s has %zu", kinds[i],
                     option_count(o, kinds[i]));
            return false;
        }
    return true;
}
