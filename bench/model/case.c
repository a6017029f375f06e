/* SPDX-License-Identifier: MIT */
/* A case's options as those of a trainer, and what the formulas say about them; see case.h. */
#include "bench/model/case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/core/text.h"
#include "common/model/float8.h"
#include "common/formulas/offload.h"
#include "common/train/memory_step.h"
#include "kernels/shared/internal.h"

/* ---- dimensions ---- */

/* What --size and the options beside it say; 0: nothing. */
typedef struct dimensions {
    const char *size;
    int d_model, d_ff, layers, heads, heads_kv, vocab;
} dimensions;

/* What the formulas of a model allow, and a step does not: a loss of one class is always 0, and attention takes these
 * widths alone. */
static bool step_can_run(const model_config *c, char *why, size_t why_bytes)
{
    const int head_dim = model_head_dim(c);
    if (c->vocab < 2)
        snprintf(why, why_bytes, "--vocab %d leaves nothing to predict; it must be at least 2", c->vocab);
    else if (c->heads && (head_dim < SB_HEAD_DIM_MIN || head_dim > SB_HEAD_DIM_MAX || head_dim % SB_HEAD_DIM_STEP != 0))
        snprintf(why, why_bytes, "head_dim %d (d_model %d / heads %d) is not a multiple of %d from %d to %d", head_dim,
                 c->d_model, c->heads, SB_HEAD_DIM_STEP, SB_HEAD_DIM_MIN, SB_HEAD_DIM_MAX);
    else
        return true;
    return false;
}

static bool config_of(const dimensions *x, model_config *out, char *why, size_t why_bytes)
{
    const model_config *size = model_size_find(x->size);
    if (!size) {
        snprintf(why, why_bytes, "there is no size %s", x->size);
        return false;
    }
    const int head_dim = model_head_dim(size);
    if (x->d_model && !x->heads && head_dim && x->d_model % head_dim != 0) {
        snprintf(why, why_bytes, "d_model %d is not a multiple of the head_dim %d of %s; give --heads", x->d_model,
                 head_dim, x->size);
        return false;
    }
    *out = model_config_resized(size, &(model_config){.d_model = x->d_model,
                                                      .d_ff = x->d_ff,
                                                      .layers = x->layers,
                                                      .heads = x->heads,
                                                      .heads_kv = x->heads_kv,
                                                      .vocab = x->vocab});
    return !model_config_problem(out, why, why_bytes) && step_can_run(out, why, why_bytes);
}

static sb_fp32_products products_of(const char *name)
{
    return text_is(name, "fp16x3") ? SB_FP16X3 : text_is(name, "fp16x3-fast") ? SB_FP16X3_FAST : SB_FMA;
}

static dimensions dimensions_of(const bench_case *c)
{
    return (dimensions){.size = case_text(c, "size"),
                        .d_model = (int)case_int(c, "d-model"),
                        .d_ff = (int)case_int(c, "d-ff"),
                        .layers = (int)case_int(c, "layers"),
                        .heads = (int)case_int(c, "heads"),
                        .heads_kv = (int)case_int(c, "heads-kv"),
                        .vocab = (int)case_int(c, "vocab")};
}

int64_t model_dimension(const bench_case *c, const char *option)
{
    const dimensions x = dimensions_of(c);
    char why[256];
    model_config m;
    if (!config_of(&x, &m, why, sizeof why))
        return 0;
    const struct {
        const char *option;
        int value;
    } of[] = {{"d-model", m.d_model}, {"d-ff", m.d_ff},         {"layers", m.layers},
              {"heads", m.heads},     {"heads-kv", m.heads_kv}, {"vocab", m.vocab}};
    size_t i = 0;
    while (!text_is(of[i].option, option))
        i++;
    return of[i].value;
}

bool model_case_shape(const bench_case *c, step_options *out, char *why, size_t why_bytes)
{
    const dimensions x = dimensions_of(c);
    *out = step_defaults();
    if (!config_of(&x, &out->config, why, why_bytes))
        return false;
    out->batch = (int)case_int(c, "batch");
    out->seq = (int)case_int(c, "seq");
    out->mode = step_mode_parse(case_text(c, "mode"));
    out->precision = precision_find(case_text(c, "precision"));
    out->attention = case_text(c, "attention");
    out->split = products_of(case_text(c, "fp32-products"));
    out->grad_fp32 = text_is(case_text(c, "grad-dtype"), "fp32");
    out->moments = moments_parse(case_text(c, "moments"));
    out->loss_chunk = (int)case_int(c, "loss-chunk");
    out->deterministic = case_int(c, "deterministic") != 0;
    out->overlap = overlap_parse(case_text(c, "overlap"));
    out->seed = (uint64_t)case_int(c, "seed");
    if (out->split && out->precision->compute != SB_FP32) {
        snprintf(why, why_bytes, "--fp32-products %s is for --precision fp32", case_text(c, "fp32-products"));
        return false;
    }
    if (out->loss_chunk && out->mode == STEP_FORWARD) {
        snprintf(why, why_bytes,
                 "--mode forward has no loss in chunks: --loss-chunk makes it together with its backward");
        return false;
    }
    if (out->moments != MOMENTS_POLICY && out->mode != STEP_TRAIN) {
        snprintf(why, why_bytes, "--moments %s is for --mode train-step: the others have no optimizer",
                 case_text(c, "moments"));
        return false;
    }
    return true;
}

/* What contradicts itself would be measured a second time under another name. */
bool model_case_options(const bench_case *c, step_options *out, char *why, size_t why_bytes)
{
    if (!model_case_shape(c, out, why, why_bytes))
        return false;
    out->recompute = recompute_parse(case_text(c, "recompute"));
    out->recompute_every = (int)case_int(c, "recompute-every");
    out->offload = offload_parse(case_text(c, "offload"));
    out->offload_every = (int)case_int(c, "offload-every");
    if (case_has(c, "micro-batches")) {
        out->micro_batches = (int)case_int(c, "micro-batches");
        out->clip_norm = case_real(c, "clip");
    }
    const recompute_schedule schedule = step_schedule(out);
    const char *contradiction =
        out->recompute != RECOMPUTE_BLOCK && out->recompute_every > 1
            ? "--recompute-every above 1 is for --recompute block"
        : out->recompute != RECOMPUTE_NONE && out->mode == STEP_FORWARD
            ? "--mode forward keeps nothing that could be recomputed"
        : !out->offload && out->offload_every > 1   ? "--offload-every above 1 is for --offload"
        : out->offload && out->mode == STEP_FORWARD ? "--mode forward keeps nothing that could be offloaded"
        : out->micro_batches > 1 && out->mode == STEP_FORWARD
            ? "--mode forward has no gradients that --micro-batches could add up"
        : out->clip_norm > 0 && out->mode != STEP_TRAIN ? "--clip is for --mode train-step: the others have no update"
                                                        : offload_problem(&schedule);
    if (contradiction)
        snprintf(why, why_bytes, "%s", contradiction);
    return !contradiction;
}

static bool has_choice(const options *o, const char *name, const char *choice)
{
    for (size_t i = 0; i < option_count(o, name); i++)
        if (text_is(option_text_at(o, name, i), choice))
            return true;
    return false;
}

/* The combination of lists that `place` stands for, a mixed-radix number; false behind the last one. */
static bool dimensions_at(const options *o, size_t place, dimensions *x)
{
    int *const fields[] = {&x->d_model, &x->heads, &x->heads_kv, &x->vocab};
    static const char *const names[] = {"d-model", "heads", "heads-kv", "vocab"};
    x->size = option_text_at(o, "size", place % option_count(o, "size"));
    place /= option_count(o, "size");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *fields[i] = (int)option_int_at(o, names[i], place % option_count(o, names[i]));
        place /= option_count(o, names[i]);
    }
    return place == 0;
}

bool model_shape_validate(const options *o, char *msg, size_t msg_bytes)
{
    char why[256];
    dimensions x = {0};
    model_config config;
    for (size_t place = 0; dimensions_at(o, place, &x); place++)
        if (!config_of(&x, &config, why, sizeof why)) {
            snprintf(msg, msg_bytes, "--size %s --d-model %d --heads %d --heads-kv %d: %s", x.size, x.d_model, x.heads,
                     x.heads_kv, why);
            return false;
        }
    const int64_t batch = option_int_most(o, "batch"), seq = option_int_most(o, "seq");
    const int64_t sharers = options_have(o, "cp") ? option_int_most(o, "cp") : 1;
    if (batch * (seq / sharers) > INT32_MAX / 4) { /* no step takes more */
        snprintf(msg, msg_bytes, "--batch %lld x --seq %lld: the batch of a rank must have fewer than 2^29 tokens",
                 (long long)batch, (long long)seq);
        return false;
    }
    static const char *const by_parts[] = {"fp16x3", "fp16x3-fast"};
    for (size_t i = 0; i < sizeof by_parts / sizeof *by_parts; i++)
        if (has_choice(o, "fp32-products", by_parts[i]) && !has_choice(o, "precision", "fp32")) {
            snprintf(msg, msg_bytes, "--fp32-products %s is for --precision fp32", by_parts[i]);
            return false;
        }
    return true;
}

bool model_options_validate(const options *o, char *msg, size_t msg_bytes)
{
    if (!model_shape_validate(o, msg, msg_bytes))
        return false;
    for (size_t i = 0; i < option_count(o, "recompute-every"); i++)
        if (option_int_at(o, "recompute-every", i) > 1 && !has_choice(o, "recompute", "block")) {
            snprintf(msg, msg_bytes, "--recompute-every %d is for --recompute block",
                     (int)option_int_at(o, "recompute-every", i));
            return false;
        }
    for (size_t i = 0; i < option_count(o, "offload-every"); i++)
        if (option_int_at(o, "offload-every", i) > 1 && option_count(o, "offload") == 1 &&
            has_choice(o, "offload", "none")) {
            snprintf(msg, msg_bytes, "--offload-every %d is for --offload", (int)option_int_at(o, "offload-every", i));
            return false;
        }
    return true;
}

option_spec *model_option(option_spec *table, const char *name)
{
    while (strcmp(table->name, name) != 0)
        table++;
    return table;
}

void model_options_of_ranks(option_spec *table)
{
    option_spec *overlap = model_option(table, "overlap");
    overlap->def = "none";
    overlap->choices = "none|gradients";
    overlap->help = "what runs on other streams during the backward: weight gradients, or nothing";
    model_option(table, "mode")->choices = "train-step";
}

static const char *wrong_for_steps(const options *o)
{
    const bool check = option_flag(o, "check");
    if (text_is(option_text(o, "l2"), "cold"))
        return "--l2 cold says nothing about a whole step; only warm is allowed";
    if (option_given(o, "timer"))
        return "--timer has no effect here: steps are timed by events on the compute stream";
    if (option_real(o, "peak-tflops") > 0 && option_count(o, "precision") > 1)
        return "--peak-tflops is that of one precision, and --precision has more";
    if (!check && !text_is(option_text(o, "plant-error"), "none"))
        return "--plant-error is for the check, which --check 0 leaves out";
    if (!check && option_int(o, "iters") == 0)
        return "--iters 0 runs only the check, which --check 0 leaves out";
    return NULL;
}

bool model_steps_validate(const options *o, char *msg, size_t msg_bytes)
{
    const char *wrong = wrong_for_steps(o);
    if (wrong)
        snprintf(msg, msg_bytes, "%s", wrong);
    return !wrong && model_options_validate(o, msg, msg_bytes);
}

step_options model_slice(const step_options *o)
{
    enum { LAYERS = 2, BATCH = 2 };
    step_options slice = *o;
    slice.config.layers = o->config.layers < LAYERS ? o->config.layers : LAYERS;
    slice.batch = o->batch < BATCH ? o->batch : BATCH;
    slice.recompute_every = o->recompute_every < slice.config.layers ? o->recompute_every : slice.config.layers;
    slice.deterministic = true;
    slice.lr = 1e-3;
    slice.eps = 1e-5;
    return slice;
}

int model_slice_chunk(const step_options *slice)
{
    const int tokens = slice->batch * slice->seq, half = (tokens + 1) / 2;
    return slice->loss_chunk < half ? slice->loss_chunk : half;
}

/* ---- formulas ---- */

transformer_shape model_shape(const step_options *o)
{
    const model_config *c = &o->config;
    const int64_t batch = (int64_t)o->batch * step_micro_batches(o);
    return (transformer_shape){c->vocab, c->d_model, c->d_ff, c->layers, c->heads, c->heads_kv, batch, o->seq};
}

transformer_repeats model_repeats(const step_options *o)
{
    if (o->mode == STEP_FORWARD)
        return (transformer_repeats){0};
    const recompute_schedule schedule = step_schedule(o);
    return recompute_repeats(&schedule, strncmp(o->attention, "flash", 5) == 0);
}

const char *model_product_dtype(const step_options *o)
{
    const sb_dtype t = o->precision->compute;
    return t == SB_FP32 && o->split ? "fp16x3" : sb_dtype_name(t);
}

const char *model_attention_dtype(const step_options *o)
{
    if (o->precision->compute != SB_FP32)
        return model_product_dtype(o);
    return text_is(o->attention, "flash") ? "fp16x3" : text_is(o->attention, "flash_portable") ? "bf16x6" : "fp32";
}

/* Operations a token of a block's linear layer, if its sizes fit float8. An eager step multiplies its parts one by one. */
static double float8_flops(const step_options *o, int in, const int *out, int parts)
{
    double flops = 0;
    int whole = 0;
    for (int i = 0; i < parts; i++) {
        whole += out[i];
        flops += out[i] % 16 == 0 ? 2.0 * in * out[i] : 0;
    }
    if (o->fusion != FUSION_NONE)
        flops = whole % 16 == 0 ? 2.0 * in * whole : 0;
    return in % 16 == 0 ? flops : 0;
}

double model_float8_share(const step_options *o)
{
    const float8_recipe *r = o->precision->float8 ? float8_recipe_find(o->precision->name) : NULL;
    const model_config *c = &o->config;
    const int d = c->d_model, kv = model_kv_dim(c), f = c->d_ff, qkv[] = {d, kv, kv}, gate_up[] = {f, f};
    if (!r || (int64_t)o->batch * o->seq % 16 != 0)
        return 0;
    const transformer_shape shape = model_shape(o);
    const double block = float8_flops(o, d, qkv, 3) + float8_flops(o, d, &d, 1) + float8_flops(o, d, gate_up, 2) +
                         float8_flops(o, f, &d, 1);
    const double passes = o->mode == STEP_FORWARD ? 1 : (1.0 + (r->dx != NULL) + (r->dw != NULL)) / 3;
    return passes * c->layers * block / (2 * transformer_matmul_parameters(&shape));
}

double model_peak16_tflops(const step_options *o, const char *gpu)
{
    const transformer_shape shape = model_shape(o);
    return transformer_peak_tflops(&shape, peak_tflops(gpu, model_product_dtype(o)),
                                   peak_tflops(gpu, model_attention_dtype(o)));
}

double model_peak_tflops(const step_options *o, const char *gpu)
{
    const transformer_shape shape = model_shape(o);
    const double share = model_float8_share(o), wide = peak_tflops(gpu, model_product_dtype(o));
    const double products = share > 0 ? 1 / (share / peak_tflops(gpu, "fp8") + (1 - share) / wide) : wide;
    return transformer_peak_tflops(&shape, products, peak_tflops(gpu, model_attention_dtype(o)));
}

/* The elements of the unit that has most. */
static int64_t largest_unit(const step_options *o)
{
    params *p = params_create(&o->config);
    int64_t most = 0;
    for (int unit = 0; unit < params_units(p); unit++) {
        int64_t first, count;
        params_unit_range(p, unit, &first, &count);
        most = count > most ? count : most;
    }
    params_free(p);
    return most;
}

/* What slices leave of a kind of memory, and the units of it that are whole beside them. */
static double sliced(int64_t bytes, int slices, double whole)
{
    return slices > 1 ? (double)bytes / slices + whole : (double)bytes;
}

/* `unit`: the elements of one. */
static double held_of(const memory_bytes *b, const step_options *o, const model_slices *s, double unit)
{
    const double element = sb_dtype_bytes(o->precision->param), kept = (double)b->param * s->kept;
    const int64_t state = b->master + b->moment1 + b->moment2;
    return (double)(memory_total(b) - state - b->param - b->grad) + sliced(state, s->state, 0) +
           sliced(b->param, s->params, fmax(kept, s->param_units * unit * element)) +
           sliced(b->grad, s->grads, s->grad_units * unit * sb_dtype_bytes(step_made_dtype(o)));
}

/* Copies in float8: of weights both ways, where they stay, and of the largest gradient both ways with its input. */
static double float8_bytes(const step_options *o, bool weights_stay)
{
    const model_config *c = &o->config;
    const double d = c->d_model, f = c->d_ff, tokens = (double)o->batch * o->seq;
    const double weights = c->layers * d * (2 * d + 2 * model_kv_dim(c) + 3 * f);
    if (!o->precision->float8)
        return 0;
    return (weights_stay && o->fusion != FUSION_NONE ? 2 * weights : 0) + tokens * (4 * f + d);
}

double model_estimate(const step_options *options, const model_slices *s)
{
    step_options o = *options;
    if (strncmp(o.attention, "flash", 5) == 0)
        o.attention = "flash";
    const bool apart = o.micro_batches > 1 && s->grads == 1, slot = apart && !step_sums_in_products(&o);
    o.share_grad_memory = o.share_grad_memory && !apart && s->grads == 1;
    const memory_step step = memory_step_of(&o, sb_kernels_cpu(), NULL);
    const memory_peaks peaks = memory_predict(&step);
    const double unit = slot || s->grads > 1 || s->params > 1 ? (double)largest_unit(&o) : 0;
    const double forward = held_of(&peaks.forward, &o, s, unit), backward = held_of(&peaks.backward, &o, s, unit);
    return fmax(forward, fmax(backward, held_of(&peaks.update, &o, s, unit))) + float8_bytes(&o, s->params == 1) +
           (slot ? unit * sb_dtype_bytes(step_made_dtype(&o)) : 0);
}

double model_case_estimate(const options *opt, const bench_case *c)
{
    (void)opt;
    static const model_slices whole = {.state = 1, .grads = 1, .params = 1};
    step_options o;
    char why[256];
    if (!model_case_options(c, &o, why, sizeof why))
        return 0;
    o.share_grad_memory = !(case_has(c, "share-grads") && !case_int(c, "share-grads"));
    return model_estimate(&o, &whole);
}
