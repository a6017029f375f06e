/* SPDX-License-Identifier: MIT */
/* The check of a case before it is timed, on a slice of its model of two blocks: the loss and the gradients of a step, and
 * the parameters after three, against a trainer on each rank that has whole layers and the tokens of all ranks.
 *
 * And against one rank that computes the parts of all ranks (replica/parts.h), whose bits they must have where it adds up as
 * they do.
 *
 * Sums over ranks are rounded in another order than sums within a product, so results differ by roundings. The bounds are at
 * least six times what sound runs show, and at most half of what the least planted error makes (tests/bench/test_columns_tp.c). */
#include "bench/model/case.h"
#include "bench/share/compare.h"
#include "bench/share/share.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/check.h"
#include "common/core/error.h"
#include "common/core/numeric.h"
#include "common/record/nvtx.h"
#include "common/replica/parts.h"

enum { STEPS = 3 };

typedef struct outcome {
    bool ok;
    double err_loss, err_grad, err_norm, err_param;
    int64_t bits_off;
    char reason[320];
} outcome;

/* What a rank has, in the order of its tensors. */
typedef struct seen {
    float *grads, *start, *after;
    double losses[STEPS], norm; /* of the first step's gradients */
} seen;

/* False after setting the row's status. */
static bool take_steps(share_case *k, team *x, seen *out)
{
    replica_problem problem;
    sb_optimizer_state state = {0};
    out->start = share_read(x, false);
    for (int i = 0; i < STEPS; i++) {
        team_step(x);
        team_settle(x);
        out->losses[i] = share_mean_loss(x);
        if (i > 0)
            continue;
        out->grads = share_read(x, true);
        if (x->member)
            trainer_optimizer_state(x->t, &state);
        out->norm = state.grad_norm;
        if (k->graph && !team_capture(x, &problem))
            return share_problem(k, &problem);
    }
    out->after = share_read(x, false);
    return true;
}

static void free_seen(seen *r)
{
    free(r->grads);
    free(r->start);
    free(r->after);
}

/* ---- comparing ---- */

static void compare(const team *x, const seen *want, const seen *got, outcome *out)
{
    const share_bounds b = share_bounds_of(&x->o);
    const params *p = trainer_params(x->t);
    params *whole = params_create(&x->o.config);
    OWNED bool *summed = share_summed(x);
    if (summed)
        share_round(x, want->after, (size_t)whole->elements);
    share_distance moved = {0, 0};
    const char *worst = "";
    for (int i = 0; i < STEPS; i++)
        out->err_loss = check_worse(out->err_loss, fabs(got->losses[i] / want->losses[i] - 1));
    for (int i = 0; i < p->count; i++) {
        const param_tensor *t = &p->tensors[i], *all = params_find(whole, t->kind, t->layer);
        const double grad = share_relative(share_distance_of(t, got->grads, summed, all, want->grads, NULL));
        const share_distance d = share_distance_of(t, got->after, NULL, all, want->after, want->start);
        moved.off += d.off, moved.size += d.size;
        if (!isnan(out->err_grad) && !(grad <= out->err_grad)) /* NaN is the worst of all */
            out->err_grad = grad, worst = t->name;
    }
    params_free(whole);
    out->err_param = share_relative(moved);
    out->err_norm = x->o.clip_norm > 0 ? fabs(got->norm / want->norm - 1) : 0;
    out->ok =
        out->err_grad <= b.grad && out->err_loss <= b.loss && out->err_param <= b.param && out->err_norm <= b.norm;
    if (!(out->err_grad <= b.grad))
        snprintf(out->reason, sizeof out->reason,
                 "on rank %d the gradient of %s is off by %.2e of that of one rank; %.0e is allowed", x->rank, worst,
                 out->err_grad, b.grad);
    else if (!(out->err_norm <= b.norm))
        snprintf(out->reason, sizeof out->reason,
                 "on rank %d the norm of all gradients is off by %.2e of that of one rank; %.0e is allowed", x->rank,
                 out->err_norm, b.norm);
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
    OWNED outcome *all = launch_gathered(k->l, "check", out, sizeof *out);
    *out = all[0];
    for (int r = 1; r < k->ranks; r++) {
        const outcome *x = &all[r];
        if (out->ok && !x->ok) {
            out->ok = false;
            memcpy(out->reason, x->reason, sizeof out->reason);
        }
        out->err_loss = check_worse(out->err_loss, x->err_loss);
        out->err_grad = check_worse(out->err_grad, x->err_grad);
        out->err_norm = check_worse(out->err_norm, x->err_norm);
        out->err_param = check_worse(out->err_param, x->err_param);
        out->bits_off += x->bits_off;
    }
}

/* Makes a team, takes its steps, and compares them if there is something to compare with. */
static bool steps_of(share_case *k, const step_options *slice, const team_way *way, seen *out, const seen *want,
                     outcome *result)
{
    team *x = share_team(k, slice, way);
    const bool ok = x && take_steps(k, x, out);
    if (ok && x->member && want)
        compare(x, want, out, result);
    team_free(x);
    memory_release_all(k->s->mem); /* the case may need all of it */
    return ok;
}

/* ---- the bits of one rank that computes the same parts ---- */

/* Elements of a and b that differ, and the tensor with the first one. */
static int64_t differing(const params *p, const float *a, const float *b, const char **name)
{
    int64_t n = 0;
    for (int i = 0; i < p->count; i++)
        for (int64_t j = p->tensors[i].first; j < p->tensors[i].first + p->tensors[i].count; j++)
            if (float_bits(a[j]) != float_bits(b[j]) && n++ == 0)
                *name = p->tensors[i].name;
    return n;
}

static void compare_bits(const share_case *k, parts *all, const seen *got, outcome *out)
{
    trainer *t = parts_of(all, launch_rank(k->l));
    const char *name = "the loss", *what = "";
    for (int i = 0; i < STEPS; i++) {
        parts_step(all);
        if (!t)
            continue;
        out->bits_off += trainer_loss(t) != got->losses[i];
        OWNED float *mine = i == 0 || i == STEPS - 1 ? share_read_trainer(t, i == 0) : NULL;
        const int64_t before = out->bits_off;
        if (mine)
            out->bits_off += differing(trainer_params(t), i ? got->after : got->grads, mine, &name);
        if (before == 0 && out->bits_off > 0)
            what = i ? "parameters: " : "gradients: ";
    }
    if (!out->bits_off || !out->ok)
        return;
    out->ok = false;
    snprintf(out->reason, sizeof out->reason,
             "on rank %d %lld numbers, the first of %s%s, have other bits than those of one rank that computes the "
             "same parts",
             launch_rank(k->l), (long long)out->bits_off, what, name);
}

/* False after setting the row's status. */
static bool check_bits(share_case *k, const step_options *slice, const seen *got, outcome *out)
{
    replica_problem problem;
    if (!share_has_bits(k))
        return true;
    phase_set("check: one rank that computes all parts");
    parts *all = parts_create(&k->at, slice, k->ranks, k->way, &problem);
    if (!all)
        return share_problem(k, &problem);
    compare_bits(k, all, got, out);
    parts_free(all);
    return true;
}

static bool check_slice(share_case *k, const step_options *slice, outcome *out)
{
    seen want = {.grads = NULL}, got = {.grads = NULL};
    step_options one = *slice;
    one.batch *= k->batches;
    phase_set("check: one rank with whole layers");
    bool ok = steps_of(k, &one, NULL, &want, NULL, NULL);
    phase_set("check: ranks that share layers");
    ok = ok && steps_of(k, slice, k->way, &got, &want, out);
    ok = ok && check_bits(k, slice, &got, out);
    if (ok)
        merge(k, out);
    free_seen(&want);
    free_seen(&got);
    return ok;
}

bool share_verify(share_case *k)
{
    if (!option_flag(k->s->opt, "check"))
        return true;
    const step_options slice = model_slice(&k->o);
    outcome out = {.ok = true};
    scope_push("verify");
    const bool ran = check_slice(k, &slice, &out);
    scope_pop();
    if (!ran)
        return false;
    row_real(k->w, "err_loss", out.err_loss);
    row_real(k->w, "err_grad", out.err_grad);
    row_real(k->w, "err_norm", k->o.clip_norm > 0 ? out.err_norm : NAN);
    row_real(k->w, "err_param", out.err_param);
    if (share_has_bits(k))
        row_int(k->w, "bits_off", out.bits_off);
    if (!out.ok)
        row_status_set(k->w, ROW_FAIL, "%s", out.reason);
    return out.ok;
}
