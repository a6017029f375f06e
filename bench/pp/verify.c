/* SPDX-License-Identifier: MIT */
/* The check: as many layers as there are stages, 3 updates on the ranks and on one rank with the same micro-batches. Each product has the
 * shape that one rank gives it, and sums over micro-batches have one order, so loss, gradients and parameters have one
 * rank's bits. With clipping the norm is added up in another order: what follows from it is within bounds. So is everything
 * where ranks share layers or a batch, too: one rank then has the tokens of all of them in each micro-batch. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/pp/verify.h"
#include "bench/pp/stage.h"
#include "bench/share/compare.h"
#include "common/core/check.h"
#include "common/core/error.h"
#include "common/record/nvtx.h"

enum { CHECK_STEPS = 3 };
static const double bound_norm = 1e-5; /* relative */
static const double check_eps = 1e-5;  /* of AdamW: small gradients' signs are not magnified */
static const double plan_slack = 1.03; /* gaps */
enum { PLACES = 4 /* of tensors on their way, of each chunk */ };

typedef struct outcome { /* relative differences; 0: the same bits */
    double loss, grad, norm, param;
    double plan_pct; /* what is planned, of what the bound allows */
} outcome;

/* ---- comparing ---- */

/* The norm of the difference over the norm; 0 for equal bits alone, NAN where a number is none. */
static double difference(const float *want, const float *got, size_t n)
{
    double off = 0, all = 0;
    if (memcmp(want, got, n * sizeof *want) == 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        off += pow((double)got[i] - want[i], 2);
        all += pow(want[i], 2);
    }
    return off > 0 ? sqrt(off / fmax(all, 1e-30)) : isnan(off) ? NAN : 1e-30;
}

static void note(pp_case *k, int what, const char *name, double err, double allowed)
{
    static const char *const names[] = {
        [WRONG_LOSS] = "loss", [WRONG_GRAD] = "gradient", [WRONG_NORM] = "norm", [WRONG_PARAM] = "parameter"};
    if (err <= allowed || row_status_get(k->w) != ROW_OK)
        return;
    k->wrong = what;
    char bound[64] = "the bits have to be the same";
    if (allowed > 0)
        snprintf(bound, sizeof bound, "%.0e is allowed", allowed);
    row_status_set(k->w, ROW_FAIL, "wrong %s%s%s: rank %d differs from one rank by %.3g; %s", names[what],
                   *name ? " of " : "", name, k->rank, err, bound);
}

/* Gradients, or parameters, of this rank's tensors. */
static double compare_tensors(pp_case *k, trainer *whole, const pp_stage *s, bool grads, double allowed)
{
    const params *p = trainer_params(s->t);
    OWNED float *got = share_read(s->x, grads);
    OWNED bool *summed = share_summed(s->x);
    double worst = 0;
    for (int i = 0; i < p->count; i++) {
        const param_tensor *own = &p->tensors[i];
        param_tensor same = *params_find(trainer_params(whole), own->kind, own->layer);
        OWNED float *want = xmalloc((size_t)same.count * sizeof *want);
        (grads ? trainer_read_grad : trainer_read_param)(whole, &same, want);
        if (summed && !grads)
            share_round(s->x, want, (size_t)same.count);
        same.first = 0;
        const double err = !pp_shares(k)
                               ? difference(want, got + own->first, (size_t)own->count)
                               : share_relative(share_distance_of(own, got, grads ? summed : NULL, &same, want, NULL));
        note(k, grads ? WRONG_GRAD : WRONG_PARAM, own->name, err, allowed);
        worst = check_worse(worst, err);
    }
    return worst;
}

static double norm_of(trainer *t)
{
    sb_optimizer_state state;
    trainer_optimizer_state(t, &state);
    return state.grad_norm;
}

static double relative(double want, double got)
{
    return want == got ? 0 : fabs(got - want) / fmax(fabs(want), 1e-30);
}

/* After an update by gradients, or a norm, with other last bits: those of 16-bit numbers differ soon. */
static double bound_after_update(const pp_case *k)
{
    return sb_dtype_bytes(k->o.precision->activations) == 2 ? 2e-2 : 1e-4;
}

static void compare_step(pp_case *k, trainer *whole, pp_stage *s, int step, double loss, outcome *out)
{
    const bool clip = k->o.clip_norm > 0, shares = pp_shares(k);
    const share_bounds most = share_bounds_of(&k->o);
    const double later = clip || shares ? bound_after_update(k) : 0;
    if (k->rank == k->loss_rank) {
        const double err = relative(trainer_loss(whole), loss);
        note(k, WRONG_LOSS, "", err, step > 0 ? later : shares ? most.loss : 0);
        out->loss = check_worse(out->loss, err);
    }
    if (step == 0)
        out->grad = compare_tensors(k, whole, s, true, shares ? most.grad : 0);
    if (clip) {
        const double err = relative(norm_of(whole), norm_of(s->t));
        note(k, WRONG_NORM, "", err, step > 0 ? later : shares ? most.norm : bound_norm);
        out->norm = check_worse(out->norm, err);
    }
    if (step == CHECK_STEPS - 1)
        out->param = compare_tensors(k, whole, s, false, later);
}

/* ---- each tensor on one rank, and no more memory than the schedule allows ---- */

static bool all_parts(pp_case *k, const pp_stage *s, const trainer *whole)
{
    const bool counts = k->rank == pp_rank_at(k, k->stage); /* of those at its place */
    const int n = launch_size(k->l), mine = s->t && counts ? trainer_params(s->t)->count : 0;
    OWNED int *all = launch_gathered(k->l, "parts", &mine, sizeof mine);
    int sum = 0;
    for (int r = 0; r < n; r++)
        sum += all[r];
    if (whole && sum != trainer_params(whole)->count) {
        k->wrong = WRONG_PARTS;
        row_status_set(k->w, ROW_FAIL, "wrong parts: the ranks have %d tensors, the model %d", sum,
                       trainer_params(whole)->count);
    }
    return pp_agree(k, "all parts");
}

/* Most W that wait at a time. */
static int waiting_w(const step_table *t)
{
    int waiting = 0, most = 0;
    for (int i = 0; i < t->action_count; i++) {
        const bool b = t->actions[i].work == STEP_B, w = t->actions[i].work == STEP_W;
        waiting += b - w;
        most = waiting > most ? waiting : most;
    }
    return most;
}

/* The most blocks in a stage of this rank. */
static int most_blocks(const pp_case *k, const int *ends)
{
    int most = 0;
    for (int chunk = 0; chunk < k->shape.chunks; chunk++) {
        const int stage = pipeline_stage(&k->shape, k->stage, chunk),
                  blocks = ends[stage] - (stage ? ends[stage - 1] : 0);
        most = blocks > most ? blocks : most;
    }
    return most;
}

/* The plan with the micro-batches of the schedule's bound before the first backward, and what each waiting W reads: the gradients of the
 * outputs of a block's four products, what went in where it is computed again, and the logits' gradient. */
static double most_bytes(const pp_case *k, const int *ends, const pp_stage *s)
{
    step_options o = s->x->o;
    step_table *most = pp_bound_table(k, ends, k->stage);
    o.table = most;
    const double bound = (double)trainer_planned_bytes(k->s->dev, k->at.kernels, k->at.ctx, &o);
    const model_config *c = &o.config;
    const double outputs = 3. * c->d_model + 2. * model_kv_dim(c) + 2. * c->d_ff, inputs = 3. * c->d_model + c->d_ff;
    const double columns = most_blocks(k, ends) * (outputs + (o.recompute == RECOMPUTE_NONE ? 0 : inputs)) +
                           (k->stage == pipeline_loss_rank(&k->shape) ? c->vocab : 0);
    const double gradients = columns * o.batch * o.seq * sb_dtype_bytes(o.precision->activations);
    const double place = (double)c->d_model * o.batch * o.seq * sb_dtype_bytes(o.precision->activations);
    stages_table_free(most);
    return plan_slack * bound + PLACES * k->shape.chunks * place +
           (k->shape.schedule->split ? waiting_w(s->table) * gradients : 0);
}

static bool within_bound(pp_case *k, const int *ends, const pp_stage *s, outcome *out)
{
    if (k->member) {
        const double planned = (double)trainer_planned_bytes(k->s->dev, k->at.kernels, k->at.ctx, &s->x->o);
        const double most = most_bytes(k, ends, s);
        out->plan_pct = 100 * planned / most;
        if (planned > most) {
            k->wrong = WRONG_PLAN;
            row_status_set(k->w, ROW_FAIL, "wrong plan: rank %d takes %.0f bytes, and the schedule's bound allows %.0f",
                           k->rank, planned, most);
        }
    }
    return pp_agree(k, "plan");
}

/* ---- the slice ---- */

static step_options slice_of(const pp_case *k)
{
    const int stages = pipeline_stages(&k->shape);
    step_options o = k->o;
    o.config.layers = stages + (k->o.config.layers % stages != 0); /* blocks that do not divide, likewise */
    o.deterministic = true;                                        /* bits are compared */
    if (pp_shares(k))
        o.eps = check_eps;
    return o;
}

/* Rank 0 chooses for products of all stages: with a part of each layer that is like every rank's. */
static void tune_parts(pp_case *k, const step_options *slice)
{
    char why[400] = "";
    step_options o = *slice;
    replica_problem problem;
    o.split_layers = (model_split){k->on.m.tp, 0};
    o.rows_apart = true;
    trainer *t = k->member && k->on.m.tp > 1
                     ? trainer_create(k->s->dev, k->s->mem, k->at.kernels, k->at.ctx, &o, why, sizeof why)
                     : NULL;
    if (k->on.m.tp > 1 &&
        (!replica_agree(&k->at, "parts", t || !k->member, why, &problem) || !replica_tune(&k->at, t, &o, &problem)))
        row_status_set(k->w, ROW_SKIP, "%s", problem.text);
    trainer_free(t);
}

static trainer *make_whole(pp_case *k, const step_options *slice)
{
    char why[400] = "";
    step_options o = *slice;
    o.batch *= k->on.data;
    o.update_units = false; /* what a rank's update is compared with */
    tune_parts(k, slice);
    trainer *t = k->member ? trainer_create(k->s->dev, k->s->mem, k->at.kernels, k->at.ctx, &o, why, sizeof why) : NULL;
    if (k->member && !t)
        row_status_set(k->w, ROW_SKIP, "%s", why);
    replica_problem problem;
    if (pp_agree(k, "one rank") && !replica_tune(&k->at, t, &o, &problem))
        row_status_set(k->w, ROW_FAIL, "%s", problem.text);
    return t;
}

bool pp_tune(pp_case *k)
{
    const step_options slice = slice_of(k);
    trainer *t = make_whole(k, &slice);
    if (t)
        trainer_free(t);
    return pp_agree(k, "tuning");
}

static void run(pp_case *k, trainer *whole, pp_stage *s, outcome *out)
{
    if (k->member)
        replica_set_tokens(whole, k->o.seed, 0);
    team_set_tokens(s->x, k->o.seed);
    for (int step = 0; step < CHECK_STEPS; step++) {
        phase_set("check: update %d of %d on all ranks", step + 1, CHECK_STEPS);
        if (k->member)
            pp_stage_step(s);
        team_settle(s->x);
        const double loss = share_mean_loss(s->x);
        if (k->member && !trainer_step(whole))
            launch_fail(k->l, EXIT_CODE_FAILURE, "a step on one rank: %s", sb_last_message());
        device_sync(k->s->dev);
        if (k->member)
            compare_step(k, whole, s, step, loss, out);
    }
}

static void fill(pp_case *k, const outcome *mine)
{
    OWNED outcome *all = launch_gathered(k->l, "errors", mine, sizeof *mine);
    outcome worst = {0};
    for (int r = 0; r < k->ranks; r++)
        worst = (outcome){check_worse(worst.loss, all[r].loss), check_worse(worst.grad, all[r].grad),
                          check_worse(worst.norm, all[r].norm), check_worse(worst.param, all[r].param),
                          check_worse(worst.plan_pct, all[r].plan_pct)};
    row_real(k->w, "err_loss", worst.loss);
    row_real(k->w, "err_grad", worst.grad);
    row_real(k->w, "err_norm", worst.norm);
    row_real(k->w, "err_param", worst.param);
    row_real(k->w, "plan_pct", worst.plan_pct);
}

bool pp_verify(pp_case *k)
{
    const step_options slice = slice_of(k);
    int *ends = xcalloc((size_t)pipeline_stages(&k->shape), sizeof *ends);
    outcome errors = {0};
    pp_stage s = {.k = k};
    scope_push("verify");
    phase_set("check: set-up of %s", case_name(k->c));
    stages_even(&k->shape, slice.config.layers, ends);
    trainer *whole = make_whole(k, &slice);
    bool ok = pp_agree(k, "tuning") && pp_stage_open(k, &slice, ends, &s) && within_bound(k, ends, &s, &errors) &&
              all_parts(k, &s, whole);
    if (ok)
        run(k, whole, &s, &errors);
    ok = ok && pp_agree(k, "check");
    if (ok)
        fill(k, &errors);
    pp_stage_close(&s);
    if (whole)
        trainer_free(whole);
    memory_release_all(k->s->mem); /* the case may need all of it */
    free(ends);
    scope_pop();
    return ok;
}
