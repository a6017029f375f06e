/* SPDX-License-Identifier: MIT */
/* A model on every rank with its strategy: made, tuned alike, stepped, freed; see bench/ddp/ddp.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/ddp/ddp.h"
#include "common/core/error.h"
#include "common/profile/nvtx.h"
#include "common/session/watchdog.h"

/* ---- hooks: the trainer tells the strategy, which tells the trainer to update ---- */

static void on_begin(void *user)
{
    parallel_begin(((ddp_rig *)user)->p);
}

static void on_need(void *user, int64_t first, int64_t count, void *stream)
{
    parallel_need(((ddp_rig *)user)->p, first, count, stream);
}

static void on_ready(void *user, int64_t first, int64_t count, void *stream)
{
    ddp_rig *r = user;
    if (r->plant && first == 0)
        device_memset(r->d, trainer_grad_arena(r->t), 0x3f, (size_t)sb_dtype_bytes(trainer_grad_dtype(r->t)));
    parallel_ready(r->p, first, count, stream);
}

static void on_update(void *user)
{
    parallel_update(((ddp_rig *)user)->p);
}

/* What fails here fails the step, which says so. */
static void update_begin(void *user, void *stream)
{
    ddp_rig *r = user;
    if (!r->hold)
        trainer_update_begin(r->t, stream);
}

static void update(void *user, int64_t first, int64_t count, int64_t state_first, int max_blocks, void *stream)
{
    ddp_rig *r = user;
    if (!r->hold)
        trainer_update_range(r->t, first, count, state_first, max_blocks, stream);
}

static void update_all(void *user)
{
    ddp_rig *r = user;
    if (!r->hold)
        trainer_update_all(r->t);
}

/* ---- making and freeing ---- */

static parallel_plan *plan_of(ddp_case *k, const trainer_options *o, const parallel_options *p, char *why, size_t bytes)
{
    params *tensors = params_create(&o->config);
    params_pad(tensors, parallel_granularity(p->ranks));
    int64_t *starts = xcalloc((unsigned long)tensors->count + 1, sizeof *starts);
    for (int i = 0; i < tensors->count; i++)
        starts[i] = tensors->tensors[i].first;
    starts[tensors->count] = tensors->elements;
    const int grad_bytes = sb_dtype_bytes(o->grad_fp32 ? SB_FP32 : o->precision->grad);
    parallel_plan *plan =
        parallel_plan_create(p, launch_rank(k->l), &(index_space){starts, tensors->count}, grad_bytes, why, bytes);
    free(starts);
    params_free(tensors);
    return plan;
}

static parallel_model model_of(ddp_rig *r)
{
    if (!r->member)
        return (parallel_model){.d = r->d};
    return (parallel_model){.d = r->d,
                            .main = trainer_stream(r->t),
                            .grad = trainer_grad_arena(r->t),
                            .grad_dtype = ddp_comm_dtype(trainer_grad_dtype(r->t)),
                            .param = trainer_param_arena(r->t),
                            .param_dtype = ddp_comm_dtype(trainer_param_dtype(r->t)),
                            .user = r,
                            .update_begin = update_begin,
                            .update = update,
                            .update_all = update_all};
}

static bool make_trainer(ddp_case *k, ddp_rig *r)
{
    const model_bench *b = k->s->user;
    char why[400] = "";
    if (r->member)
        r->t = trainer_create(r->d, k->s->mem, b->kernels, b->ctx, &r->o, why, sizeof why);
    return ddp_agree(k, "model", !r->member || r->t, why) && ddp_tune(k, r->t, &r->o);
}

static bool make_strategy(ddp_case *k, ddp_rig *r)
{
    const parallel_model m = model_of(r);
    char why[400] = "";
    r->p = parallel_create(k->l, r->plan, &m, why, sizeof why);
    if (!ddp_agree(k, "strategy", !r->member || r->p, why))
        return false;
    if (r->member)
        trainer_set_hooks(r->t, &(trainer_hooks){r, on_begin, on_need, on_ready, on_update});
    return true;
}

bool ddp_rig_create(ddp_case *k, const trainer_options *o, const parallel_options *p, ddp_rig *r)
{
    char why[400] = "";
    *r = (ddp_rig){.l = k->l, .d = k->s->dev, .member = k->member, .o = *o, .communicating = true};
    range_push("setup");
    r->plan = plan_of(k, o, p, why, sizeof why);
    bool ok = ddp_agree(k, "plan", r->plan, why);
    if (ok) {
        r->o.ranks = p->ranks;
        r->o.granularity = parallel_granularity(p->ranks);
        /* 0 would mean all of it; a rank that owns nothing holds one element that nobody reads. */
        r->o.state_elements = !r->plan->sharded ? 0 : r->plan->own.n ? r->plan->own.state_elements : 1;
        ok = make_trainer(k, r) && make_strategy(k, r);
    }
    range_pop();
    if (!ok)
        ddp_rig_free(r);
    return ok;
}

void ddp_rig_free(ddp_rig *r)
{
    for (int i = 0; i < 2; i++)
        if (r->graphs[i])
            device_graph_destroy(r->d, r->graphs[i]);
    if (r->p)
        ddp_settle(r);
    parallel_free(r->p);
    trainer_free(r->t);
    parallel_plan_free(r->plan);
    *r = (ddp_rig){.d = r->d, .l = r->l};
}

/* ---- steps ---- */

void ddp_one_step(ddp_rig *r)
{
    watchdog_beat();
    if (r->graphs[r->communicating])
        device_graph_launch(r->d, r->graphs[r->communicating]);
    else if (!trainer_step(r->t))
        launch_fail(r->l, EXIT_CODE_FAILURE, "a step: %s", sb_last_message());
}

void ddp_settle(ddp_rig *r)
{
    parallel_join(r->p);
    device_sync(r->d);
}

void ddp_communicate(ddp_rig *r, bool on)
{
    r->communicating = on;
    if (r->member)
        parallel_communicate(r->p, on);
}

static device_graph *capture(ddp_rig *r)
{
    if (!device_graph_begin(r->d))
        return NULL;
    if (!trainer_step(r->t))
        launch_fail(r->l, EXIT_CODE_FAILURE, "a captured step: %s", sb_last_message());
    return device_graph_end(r->d);
}

bool ddp_capture(ddp_case *k, ddp_rig *r)
{
    bool ok = true;
    if (r->member)
        ddp_settle(r); /* a graph can't wait for what was enqueued before it */
    for (int on = 0; on < 2; on++) {
        ddp_communicate(r, on);
        device_graph *g = r->member ? capture(r) : NULL;
        r->graphs[on] = g;
        ok = ok && (g || !r->member);
    }
    return ddp_agree(k, "graph", ok, "the step can't be captured as a graph");
}
