/* SPDX-License-Identifier: MIT */
/* The check of a case before it is timed, on a slice of its model of two blocks: the loss and the gradients of a step, and
 * the parameters after three, against a trainer on each rank that has whole layers.
 *
 * Sums over ranks are rounded in another order than sums within a product, so results differ by roundings. The bounds are at
 * least six times what sound runs show, and at most half of what the least planted error makes (tests/bench/test_columns_tp.c). */
#include "bench/share/share.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/cache.h"
#include "common/core/error.h"
#include "common/record/nvtx.h"
#include "common/session/watchdog.h"

enum { SLICE_LAYERS = 2, SLICE_BATCH = 2, STEPS = 3 };
static const double check_eps = 1e-5; /* of AdamW: small gradients' signs are not magnified */

typedef struct outcome {
    bool ok;
    double err_loss, err_grad, err_param;
    char reason[320];
} outcome;

/* What one rank with the whole model has, in the order of its tensors. */
typedef struct whole {
    params *p;
    float *grads, *start, *after;
    double losses[STEPS];
} whole;

typedef struct bounds {
    double loss, grad, param;
} bounds;

static bounds bounds_of(const step_options *o)
{
    switch (o->precision->compute) {
    case SB_FP32: return o->split ? (bounds){1e-4, 2e-3, 2e-2} : (bounds){1e-5, 2e-4, 5e-3};
    case SB_TF32: return (bounds){3e-4, 1e-2, 2e-2};
    default: return (bounds){3e-3, 1e-1, 2.5e-1};
    }
}

static step_options slice_of(const step_options *o)
{
    step_options slice = *o;
    slice.config.layers = o->config.layers < SLICE_LAYERS ? o->config.layers : SLICE_LAYERS;
    slice.batch = o->batch < SLICE_BATCH ? o->batch : SLICE_BATCH;
    slice.recompute_every = o->recompute_every < slice.config.layers ? o->recompute_every : slice.config.layers;
    slice.deterministic = true;
    slice.lr = 1e-3;
    slice.eps = check_eps;
    return slice;
}

static float *read_all(trainer *t, void (*read)(trainer *t, const param_tensor *p, float *out))
{
    const params *p = trainer_params(t);
    float *out = xcalloc((size_t)p->elements, sizeof *out);
    for (int i = 0; i < p->count; i++)
        read(t, &p->tensors[i], out + p->tensors[i].first);
    return out;
}

/* The gradients are those of the first step. False after setting the row's status. */
static bool take_steps(share_case *k, team *x, float **grads, float **start, float **after, double losses[STEPS])
{
    replica_problem problem;
    if (x->member && start)
        *start = read_all(x->t, trainer_read_param);
    team_step(x);
    team_settle(x);
    if (x->member) {
        losses[0] = trainer_loss(x->t);
        *grads = read_all(x->t, trainer_read_grad);
    }
    if (k->graph && !team_capture(x, &problem))
        return share_problem(k, &problem);
    for (int i = 1; i < STEPS; i++) {
        team_step(x);
        team_settle(x);
        losses[i] = x->member ? trainer_loss(x->t) : NAN;
    }
    if (x->member)
        *after = read_all(x->t, trainer_read_param);
    return true;
}

static void free_whole(whole *r)
{
    params_free(r->p);
    free(r->grads);
    free(r->start);
    free(r->after);
}

static bool make_whole(share_case *k, const step_options *slice, whole *r)
{
    phase_set("check: one rank with whole layers");
    team *x = share_team(k, slice, NULL);
    const bool ok = x && take_steps(k, x, &r->grads, &r->start, &r->after, r->losses);
    if (x && x->member)
        r->p = params_create(&slice->config);
    team_free(x);
    return ok;
}

/* ---- comparing ---- */

typedef struct distance {
    double off, size; /* squares */
} distance;

static double relative(distance d)
{
    return d.off == 0 ? 0 : sqrt(d.off / d.size);
}

/* How far a rank's part of a tensor is off; `from` is what sizes are counted from, NULL: zero. */
static distance distance_of(const param_tensor *part, const float *got, const param_tensor *all, const float *want,
                            const float *from)
{
    distance d = {0, 0};
    for (int r = 0; r < part->rows; r++)
        for (int c = 0; c < part->columns; c++) {
            const int row = r + part->row_first;
            const int64_t at = all->first + (int64_t)row * all->columns + c + part->column_first;
            const double is = got[part->first + (int64_t)r * part->columns + c];
            const double x = row < all->rows ? want[at] : 0, zero = row < all->rows && from ? from[at] : 0;
            d.off += (is - x) * (is - x);
            d.size += (x - zero) * (x - zero);
        }
    return d;
}

static void compare(const team *x, const whole *r, const float *grads, const float *after, const double losses[STEPS],
                    outcome *out)
{
    const bounds b = bounds_of(&x->o);
    const params *p = trainer_params(x->t);
    distance moved = {0, 0};
    const char *worst = "";
    for (int i = 0; i < STEPS; i++)
        out->err_loss = fmax(out->err_loss, fabs(losses[i] / r->losses[i] - 1));
    for (int i = 0; i < p->count; i++) {
        const param_tensor *t = &p->tensors[i], *all = params_find(r->p, t->kind, t->layer);
        const double grad = relative(distance_of(t, grads, all, r->grads, NULL));
        const distance d = distance_of(t, after, all, r->after, r->start);
        moved.off += d.off, moved.size += d.size;
        if (!(grad <= out->err_grad))
            out->err_grad = grad, worst = t->name;
    }
    out->err_param = relative(moved);
    out->ok = out->err_grad <= b.grad && out->err_loss <= b.loss && out->err_param <= b.param;
    if (!(out->err_grad <= b.grad))
        snprintf(out->reason, sizeof out->reason,
                 "on rank %d the gradient of %s is off by %.2e of that of one rank; %.0e is allowed", x->rank, worst,
                 out->err_grad, b.grad);
    else if (!(out->err_loss <= b.loss))
        snprintf(out->reason, sizeof out->reason,
                 "on rank %d the loss is off by %.2e of that of one rank; %.0e is allowed", x->rank, out->err_loss,
                 b.loss);
    else if (!out->ok)
        snprintf(out->reason, sizeof out->reason,
                 "on rank %d parameters after %d updates are off by %.2e of how far one rank moved them; %.0e is "
                 "allowed",
                 x->rank, STEPS, out->err_param, b.param);
}

/* The worst errors of all ranks, and the sentence of the first that failed. */
static void merge(const share_case *k, outcome *out)
{
    outcome *all = xcalloc((unsigned long)launch_size(k->l), sizeof *all);
    launch_gather(k->l, "check", out, sizeof *out, all);
    *out = all[0];
    for (int r = 1; r < k->ranks; r++) {
        const outcome *x = &all[r];
        if (out->ok && !x->ok) {
            out->ok = false;
            memcpy(out->reason, x->reason, sizeof out->reason);
        }
        out->err_loss = fmax(out->err_loss, x->err_loss);
        out->err_grad = fmax(out->err_grad, x->err_grad);
        out->err_param = fmax(out->err_param, x->err_param);
    }
    free(all);
}

static bool check_slice(share_case *k, const step_options *slice, outcome *out)
{
    whole r = {.p = NULL};
    float *grads = NULL, *after = NULL;
    double losses[STEPS];
    if (!make_whole(k, slice, &r)) {
        free_whole(&r);
        return false;
    }
    memory_release_all(k->s->mem);
    phase_set("check: ranks that share layers");
    team *x = share_team(k, slice, k->way);
    bool ok = x;
    if (x) {
        x->fault = k->fault;
        ok = take_steps(k, x, &grads, NULL, &after, losses);
    }
    if (ok && x->member)
        compare(x, &r, grads, after, losses, out);
    if (ok)
        merge(k, out);
    team_free(x);
    free(grads);
    free(after);
    free_whole(&r);
    memory_release_all(k->s->mem); /* the case may need all of it */
    return ok;
}

bool share_verify(share_case *k)
{
    if (!option_flag(k->s->opt, "check"))
        return true;
    const step_options slice = slice_of(&k->o);
    outcome out = {.ok = true};
    scope_push("verify");
    const bool ran = check_slice(k, &slice, &out);
    scope_pop();
    if (!ran)
        return false;
    row_real(k->w, "err_loss", out.err_loss);
    row_real(k->w, "err_grad", out.err_grad);
    row_real(k->w, "err_param", out.err_param);
    if (!out.ok)
        row_status_set(k->w, ROW_FAIL, "%s", out.reason);
    return out.ok;
}
