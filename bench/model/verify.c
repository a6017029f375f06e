/* SPDX-License-Identifier: MIT */
/* The check of a case before it is timed: a slice of its model against the same slice in plain fp32; see verify.h.
 * Both have the same parameters and tokens, which depend only on the seed. */
#include "bench/model/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/case.h"
#include "bench/model/context.h"
#include "bench/model/float8.h"
#include "bench/model/reference.h"
#include "common/core/cache.h"
#include "common/core/error.h"
#include "common/core/spread.h"
#include "common/formulas/offload.h"
#include "common/model/float8.h"
#include "common/record/nvtx.h"

enum {
    SLICE_LAYERS = 2,
    OFFLOADED_LAYERS = 3,
    NESTED_LAYERS = 4, /* the fewest of which one is reached by way of another */
    SLICE_TOKENS = 2048,
    SLICE_MICRO_BATCHES = 3, /* the first, one that is added, the last */
    STEPS = 3,               /* one op by op, one that is captured, one replayed */
    SCALE_STEPS = 24,        /* the most that are added until no gradient overflows under the loss scale */
    PIECES = 16,             /* of a large tensor this many pieces are compared after the update, */
    PIECE = 1 << 16          /* each of this many elements */
};
/* The rate of the last step: several times the standard deviation of the weights, so that a product with weights already
 * updated is far off. And what keeps small gradients from being magnified. */
static const double update_lr = 0.1, update_eps = 1e-5;

/* ---- bounds ---- */

typedef struct bound {
    double tensor, loss; /* relative L2 error of a gradient or the logits; relative difference of the loss */
    double param;        /* L2 error of a parameter after the update, of how far it should have moved */
} bound;

/* Between a weight and its gradient lie about 14 rounded tensors a block forward and as many backward (norm, q k v,
 * RoPE, attention, o, sum, norm, gate and up, SwiGLU, w2, sum, and the scores within). Their relative errors are
 * independent, at most u (the unit roundoff) and half of that on average, so that R of them add to about u sqrt(R) /
 * 2: four times that is allowed. A missing term or a shifted row gives errors near 1. The loss is ln V and a small
 * part of the logits, so that it moves less. fp32 has its errors not from u = 2^-24 but from sums: attention and products have
 * at most 4e-6 of the result, products with long sums on tensor cores 8e-6; five times that.
 *
 * In float8 each of a block's four products forward and four backward is off by 3.8 % (e4m3 by e4m3) or 6 % (e5m2), all
 * independent of each other: twice their sum is allowed. bench/model/float8.c checks them one by one to the bit.
 *
 * AdamW's moments come from earlier steps with the same gradients but for the order of sums in attention, by which a
 * gradient differs by about u of its tensor. Elements that small, a share u, may move the other way: sqrt(u) in norm,
 * twice that is allowed. In float8 that last bit turns some roundings of a matrix: 2 % of its norm. */
static bound bound_of(const step_options *o)
{
    const int layers = o->config.layers > SLICE_LAYERS ? o->config.layers : SLICE_LAYERS;
    const double roundings = 28.0 * layers;
    if (o->precision->float8) {
        const float8_product *of_dx = float8_product_find(float8_recipe_find(o->precision->name)->dx);
        const bool wide = of_dx->a.format == SB_E5M2 || of_dx->b.format == SB_E5M2;
        const double y = 0.038, dx = wide ? 0.06 : 0.038;
        const double products = 2 * sqrt(4 * layers * (y * y + dx * dx));
        return (bound){products, products / 8, 2 * sqrt(0.02)};
    }
    double unit = o->precision->compute == SB_BF16 ? 0x1p-8 : 0x1p-11; /* of fp16 and tf32 */
    const bool fp32 = o->precision->compute == SB_FP32;
    const double products = o->split == SB_FP16X3_FAST ? 8e-6 : 4e-6;
    double tensor = fp32 ? 5 * products : 2 * unit * sqrt(roundings);
    return (bound){tensor, tensor / 8, 2 * sqrt(fp32 ? 2e-5 : unit)};
}

/* ---- what is remembered ---- */

typedef struct outcome {
    double err_loss, err_tensor, err_param;
    double grad_norm; /* of all gradients together; of a forward nothing */
    bool ok;
    char reason[256];
} outcome;

static void references_clear(void *refs)
{
    for (size_t i = 0; i < 2; i++)
        reference_clear((reference *)refs + i);
}

/* Two: that of fused slices, that of eager ones. */
static reference *references(session *s)
{
    return session_cache(s, "model references", 2 * sizeof(reference), references_clear);
}

/* The first block that is offloaded, or that is not; -1: none. */
static int first_block(const recompute_schedule *s, bool away)
{
    int l = 0;
    while (l < s->layers && (s->away[l] != 0) != away)
        l++;
    return l < s->layers ? l : -1;
}

/* The first offloaded block, the first and the last of the others. */
static recompute_schedule offloaded_slice(const recompute_schedule *all)
{
    const int away = first_block(all, true), stays = first_block(all, false);
    const int blocks[] = {away, stays < 0 ? away : stays, all->layers - 1};
    recompute_schedule s = {.layers = OFFLOADED_LAYERS, .behind = 1, .ahead = 1};
    for (int l = 0; l < s.layers; l++) {
        recompute_set(&s, l, 1, (recompute)all->what[blocks[l]], 1);
        s.away[l] = all->away[blocks[l]];
    }
    return s;
}

/* Blocks that recompute what those of the case do: all kinds of it are nested, or the first and the last block's. */
static recompute_schedule slice_schedule(const step_options *o)
{
    const recompute_schedule all = step_schedule(o);
    if (offload_count(&all))
        return offloaded_slice(&all);
    const bool nested = recompute_count(&all, RECOMPUTE_NESTED) > 0;
    const int most = nested ? NESTED_LAYERS : SLICE_LAYERS, layers = all.layers < most ? all.layers : most;
    if (nested || !o->schedule)
        return recompute_uniform(layers, nested ? RECOMPUTE_NESTED : o->recompute,
                                 o->recompute_every < layers ? o->recompute_every : layers);
    recompute_schedule s = {.layers = layers};
    for (int l = 0; l < layers; l++)
        recompute_set(&s, l, 1, (recompute)all.what[l ? all.layers - 1 : 0], 1);
    return s;
}

static step_options slice_of(const step_options *o, const recompute_schedule *schedule)
{
    step_options slice = *o;
    const int all = step_micro_batches(o), micro = all < SLICE_MICRO_BATCHES ? all : SLICE_MICRO_BATCHES;
    const int tokens_of_each = SLICE_TOKENS / micro;
    const int batch = o->seq < tokens_of_each ? tokens_of_each / o->seq : 1;
    slice.batch = o->batch < batch ? o->batch : batch;
    slice.micro_batches = micro;
    slice.config.layers = schedule->layers;
    slice.schedule = schedule;
    slice.loss_chunk = model_slice_chunk(&slice);
    if (o->mode == STEP_FORWARD_BACKWARD && o->precision->loss_scaling)
        slice.mode = STEP_TRAIN; /* the optimizer is what lowers a loss scale at which gradients overflow */
    slice.lr = 0;                /* until the last step, so that each has the gradients of the first */
    slice.eps = update_eps;
    return slice;
}

static void outcome_key(const step_options *o, char *out, size_t out_bytes)
{
    char shape[256], recompute[64];
    slice_describe(o, shape, sizeof shape);
    recompute_describe(o->schedule, recompute, sizeof recompute);
    snprintf(out, out_bytes,
             "%s %s mode %d attention %s recompute %s/%d split %d grad32 %d moments %d fusion %d det %d ovl %d %d "
             "share %d clip %g micro %d chunk %d away %d",
             shape, o->precision->name, o->mode, o->attention, recompute, o->schedule->input[o->schedule->layers - 1],
             o->split, o->grad_fp32, o->moments, o->fusion, o->deterministic, o->overlap, o->optimizer_blocks,
             o->share_grad_memory, o->clip_norm, o->micro_batches, o->loss_chunk, o->schedule->away[0]);
}

/* ---- the slice ---- */

/* What is compared after the update: whole tensors and pieces of large ones, in the order of the index space. */
typedef struct sample {
    param_tensor *parts;
    int n;
    float *before;   /* their parameters before it, one after the other */
    uint16_t *m, *v; /* and the moments, where their rounding is to be compared; else NULL */
} sample;

static sample sample_of(trainer *t)
{
    const params *p = trainer_params(t);
    sample s = {.parts = xcalloc((unsigned long)p->count * PIECES, sizeof *s.parts)};
    size_t elements = 0;
    for (int i = 0; i < p->count; i++) {
        const int64_t count = p->tensors[i].count;
        const int pieces = count > (int64_t)PIECES * PIECE ? PIECES : 1;
        for (int j = 0; j < pieces; j++) {
            param_tensor *part = &s.parts[s.n++];
            *part = p->tensors[i];
            part->count = pieces == 1 ? count : PIECE;
            part->first += pieces == 1 ? 0 : (count - PIECE) * j / (PIECES - 1);
            elements += (size_t)part->count;
        }
    }
    s.before = xmalloc(elements * sizeof *s.before);
    if (trainer_options_of(t)->moments == MOMENTS_BF16) {
        s.m = xmalloc(elements * sizeof *s.m);
        s.v = xmalloc(elements * sizeof *s.v);
    }
    for (size_t i = 0, at = 0; i < (size_t)s.n; at += (size_t)s.parts[i++].count) {
        trainer_read_param(t, &s.parts[i], s.before + at);
        if (s.m)
            trainer_read_moments(t, &s.parts[i], s.m + at, s.v + at);
    }
    return s;
}

static void sample_free(sample *s)
{
    free(s->parts);
    free(s->before);
    free(s->m);
    free(s->v);
}

/* Runs the steps; with a loss scale, until one is not skipped. The last step of a train step has a learning rate. */
static bool run_slice(trainer *t, sample *out)
{
    const bool train = trainer_options_of(t)->mode == STEP_TRAIN;
    sb_optimizer_state state = {.skip = 0};
    for (int i = 0; i < STEPS - train || (state.skip && i < STEPS + SCALE_STEPS); i++) {
        if (!trainer_step(t))
            return false;
        if (train)
            trainer_optimizer_state(t, &state);
    }
    if (!train)
        return true;
    *out = sample_of(t);
    trainer_set_lr(t, update_lr);
    return trainer_step(t);
}

/* Relative to the norm of the reference. The gradients of q and k vanish where each query sees one key: v's norm of the
 * same block then gives the scale. Adds the squares of what was got to *squares. */
static double error_of(trainer *t, const reference *r, int i, const float *got, double *squares)
{
    const param_tensor *p = &trainer_params(t)->tensors[i];
    const spread_sums sums = spread_squares((size_t)compared_count(t, i), got, r->tensors[i]);
    double scale = sqrt(sums.x[2]);
    *squares += sums.x[1];
    if (trainer_options_of(t)->mode != STEP_FORWARD && trainer_options_of(t)->seq == 1 &&
        (p->kind == PARAM_Q || p->kind == PARAM_K)) {
        const param_tensor *v = params_find(trainer_params(t), PARAM_V, p->layer);
        const float *at = r->tensors[v - trainer_params(t)->tensors];
        scale = sqrt(spread_squares((size_t)v->count, at, at).x[2]);
    }
    return sums.x[0] == 0 ? 0 : sqrt(sums.x[0]) / scale;
}

/* AdamW after steps with one and the same gradient: its moments are that gradient and its square, once corrected. */
static double update_of(const step_options *o, double param, double grad)
{
    return param * (1 - update_lr * o->weight_decay) - update_lr * grad / (fabs(grad) + o->eps);
}

/* What the rounding of a parameter without a master may take it from `want`. */
static double rounding_of(const trainer *t, double want)
{
    const bool rounded = trainer_options_of(t)->precision->master == SB_MASTER_NONE &&
                         sb_dtype_bytes(trainer_state_of(t).param_dtype) == 2;
    return rounded ? 0x1p-8 * fabs(want) : 0;
}

/* The error of a part's update, relative to how far gradients times `clip` should have moved it. */
static double error_of_update(trainer *t, const param_tensor *part, const float *before, double clip)
{
    const size_t n = (size_t)part->count;
    OWNED float *grad = xmalloc(n * sizeof *grad), *after = xmalloc(n * sizeof *after);
    double off = 0, moved = 0;
    trainer_read_grad(t, part, grad);
    trainer_read_param(t, part, after);
    for (size_t i = 0; i < n; i++) {
        const double want = update_of(trainer_options_of(t), before[i], clip * grad[i]);
        const double d = fabs(after[i] - want), room = rounding_of(t, want);
        off += d <= room ? 0 : (d - room) * (d - room); /* of NaN it is NaN */
        moved += (want - before[i]) * (want - before[i]);
    }
    return off == 0 ? 0 : sqrt(off / moved);
}

/* What clipping makes of gradients of this norm. */
static double clip_of(const step_options *o, double norm)
{
    return o->clip_norm > 0 && norm > o->clip_norm ? o->clip_norm / norm : 1;
}

static void compare_update(trainer *t, const sample *s, double allowed, outcome *out)
{
    const double clip = clip_of(trainer_options_of(t), out->grad_norm);
    const float *before = s->before;
    int worst = 0;
    out->err_param = 0;
    for (int i = 0; i < s->n && !isnan(out->err_param); before += s->parts[i++].count) {
        const param_kind kind = s->parts[i].kind;
        if (trainer_options_of(t)->seq == 1 && (kind == PARAM_Q || kind == PARAM_K))
            continue; /* their gradients vanish */
        const double err = error_of_update(t, &s->parts[i], before, clip);
        if (!(err <= out->err_param)) {
            out->err_param = err;
            worst = i;
        }
    }
    if (out->ok && !(out->err_param <= allowed)) {
        out->ok = false;
        snprintf(out->reason, sizeof out->reason,
                 "%s of the checked slice is off by %.2e of what AdamW should have moved it, %.1e is allowed",
                 s->parts[worst].name, out->err_param, allowed);
    }
}

/* What the CPU's AdamW makes of these moments and of the gradients that are there: bit for bit what the step made. */
static int64_t differing_moments(trainer *t, const param_tensor *part, uint16_t *m, uint16_t *v)
{
    const step_options *o = trainer_options_of(t);
    const size_t n = (size_t)part->count;
    OWNED uint16_t *got_m = xmalloc(n * sizeof *m), *got_v = xmalloc(n * sizeof *v);
    OWNED float *grad = xmalloc(n * sizeof *grad), *param = xcalloc(n, sizeof *param);
    sb_optimizer_state state;
    trainer_optimizer_state(t, &state);
    state.grad_factor *= state.grad_scale; /* the gradients that are read are unscaled, by a power of two */
    trainer_read_grad(t, part, grad);
    const sb_adamw p = {.state = &state,
                        .dtype_param = SB_FP32,
                        .dtype_grad = SB_FP32,
                        .dtype_moments = SB_BF16,
                        .n = n,
                        .param = param,
                        .grad = grad,
                        .m = m,
                        .v = v,
                        .stochastic = true,
                        .first = (uint64_t)part->first,
                        .beta1 = o->beta1,
                        .beta2 = o->beta2,
                        .eps = o->eps,
                        .weight_decay = o->weight_decay};
    int64_t differ = sb_kernels_cpu()->train->adamw(NULL, &p, NULL) == SB_OK ? 0 : part->count;
    trainer_read_moments(t, part, got_m, got_v);
    for (size_t i = 0; i < n; i++)
        differ += got_m[i] != m[i] || got_v[i] != v[i];
    return differ;
}

static void compare_moments(trainer *t, const sample *s, outcome *out)
{
    int64_t at = 0;
    for (int i = 0; s->m && out->ok && i < s->n; at += s->parts[i++].count) {
        const int64_t differ = differing_moments(t, &s->parts[i], s->m + at, s->v + at);
        out->ok = differ == 0;
        if (differ)
            snprintf(out->reason, sizeof out->reason,
                     "%lld of %lld moments of %s of the checked slice are not those that the CPU's AdamW rounds to",
                     (long long)differ, (long long)s->parts[i].count, s->parts[i].name);
    }
}

static void compare(trainer *t, const reference *r, bound allowed, outcome *out)
{
    const bool forward = trainer_options_of(t)->mode == STEP_FORWARD;
    const double loss = trainer_loss(t);
    int worst = 0;
    int64_t most = 0;
    for (int i = 0; i < r->count; i++)
        most = compared_count(t, i) > most ? compared_count(t, i) : most;
    OWNED float *got = xmalloc((size_t)most * sizeof *got);
    out->err_loss = fabs(loss - r->loss) / fabs(r->loss);
    out->err_tensor = 0;
    double squares = 0;
    bool read = true;
    for (int i = 0; i < r->count && !isnan(out->err_tensor); i++) {
        read = read && compared_read(t, i, got);
        const double err = read ? error_of(t, r, i, got, &squares) : NAN;
        if (!(err <= out->err_tensor)) { /* NaN is the worst of all */
            out->err_tensor = err;
            worst = i;
        }
    }
    out->grad_norm = sqrt(squares);
    out->ok = true;
    if (!(out->err_loss <= allowed.loss)) {
        out->ok = false;
        snprintf(out->reason, sizeof out->reason,
                 "loss of the checked slice is %.9g, in fp32 %.9g; a relative difference of %.1e is allowed", loss,
                 r->loss, allowed.loss);
    } else if (!(out->err_tensor <= allowed.tensor)) {
        out->ok = false;
        snprintf(out->reason, sizeof out->reason,
                 "%s%s of the checked slice: relative L2 error %.2e to fp32, %.1e is allowed",
                 forward ? "logits" : "gradient of ", forward ? "" : trainer_params(t)->tensors[worst].name,
                 out->err_tensor, allowed.tensor);
    }
}

/* False after setting the row's status. */
static bool check_slice(session *s, const step_options *slice, const char *key, row *w, outcome *out)
{
    reference *r = &references(s)[slice->fusion == FUSION_NONE];
    if (!reference_make(s, slice, r, w))
        return false;
    if (slice->precision->float8) {
        phase_set("check: casts and products in float8 of a slice: %s", key);
        out->ok = model_float8_check(s, slice, ((model_bench *)s->user)->planted, w, out->reason, sizeof out->reason);
        if (!out->ok)
            return out->reason[0];
    }
    phase_set("check: set-up of a slice: %s", key);
    trainer *t = model_trainer_untimed(s, slice, w);
    if (!t)
        return false;
    phase_set("check: steps of a slice: %s", key);
    sample updated = {.n = 0};
    bool ok = run_slice(t, &updated);
    phase_set("check: comparing with plain fp32: %s", key);
    if (ok)
        compare(t, r, bound_of(slice), out);
    else
        row_status_set(w, ROW_FAIL, "a step of the checked slice: %s", sb_last_message());
    if (ok && slice->mode == STEP_TRAIN) {
        compare_update(t, &updated, bound_of(slice).param, out);
        compare_moments(t, &updated, out);
    }
    sample_free(&updated);
    trainer_free(t);
    memory_release_all(s->mem); /* the case wants all there is */
    return ok;
}

bool model_verify(session *s, const step_options *o, row *w)
{
    if (!option_flag(s->opt, "check"))
        return true;
    char key[512];
    const recompute_schedule schedule = slice_schedule(o);
    const step_options slice = slice_of(o, &schedule);
    outcome_key(&slice, key, sizeof key);
    outcome *known = cache_find(s->kept, "model check", key);
    if (!known) {
        outcome new = {.err_param = NAN};
        scope_push("verify");
        bool compared = check_slice(s, &slice, key, w, &new);
        scope_pop();
        if (!compared)
            return false;
        known = cache_add(s->kept, "model check", key, sizeof *known, NULL);
        *known = new;
    }
    row_real(w, "err_loss", known->err_loss);
    row_real(w, o->mode == STEP_FORWARD ? "err_logits" : "err_grad", known->err_tensor);
    if (o->mode == STEP_TRAIN)
        row_real(w, "err_param", known->err_param);
    if (!known->ok)
        row_status_set(w, ROW_FAIL, "%s", known->reason);
    return known->ok;
}
