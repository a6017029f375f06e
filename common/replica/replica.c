/* SPDX-License-Identifier: MIT */
/* Makes, steps and frees a trainer with its strategy on every rank; see replica.h. */
#include <stdio.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/core/rng.h"
#include "common/record/nvtx.h"
#include "common/replica/replica.h"
#include "common/session/watchdog.h"
#include "common/train/update.h"

/* ---- hooks: the trainer tells the strategy, which tells the trainer to update ---- */

/* The hooks of the trainer are the functions of parallel, but for this one. */
static void on_ready(void *p, int64_t first, int64_t count, void *stream)
{
    replica *r = parallel_user(p);
    if (r->tamper)
        r->tamper(r, first, count, stream);
    parallel_ready(p, first, count, stream);
}

static void update_begin(void *user, void *stream)
{
    replica *r = user;
    if (r->saver)
        checkpoint_before_update(r->saver, stream);
    if (!r->hold)
        trainer_update_begin(r->t, stream);
}

static void update(void *user, int64_t first, int64_t count, int64_t state_first, int max_blocks, void *stream)
{
    replica *r = user;
    if (!r->hold)
        trainer_update_range(r->t, first, count, state_first, max_blocks, stream);
}

static void fused_update(void *user, const parallel_fused_update *x, void *stream)
{
    replica *r = user;
    sb_direct_adamw p = {.rank = x->rank, .ranks = x->ranks};
    for (int i = 0; i < x->ranks; i++) {
        p.params[i] = x->params[i];
        p.grads[i] = x->grads[i];
    }
    p.sums = x->sums_only || r->hold ? x->grads[x->rank] : NULL;
    trainer_fused_update(r->t, p, x->first, x->count, x->state_first, x->max_blocks, stream);
}

typedef struct grads_task {
    replica *r;
    void (*op)(trainer *t, void *to, const void *from, int64_t n, void *stream);
    void *to;
    const void *from;
    int64_t n;
} grads_task;

static void run_on_grads(void *arg)
{
    const grads_task *g = arg;
    g->op(g->r->t, g->to, g->from, g->n, NULL);
}

/* On the CPU a kernel runs on the thread that calls it: here that of the stream. */
static void on_grads_do(const grads_task *g, void *stream)
{
    if (device_kind_of(g->r->at.d) == DEVICE_CPU)
        device_stream_run(g->r->at.d, stream, run_on_grads, g, sizeof *g);
    else
        g->op(g->r->t, g->to, g->from, g->n, stream);
}

static void grads_add(void *user, void *to, const void *from, int64_t n, void *stream)
{
    on_grads_do(&(grads_task){user, trainer_add_grads, to, from, n}, stream);
}

static void cast(void *user, void *to, const void *from, int64_t n, void *stream)
{
    on_grads_do(&(grads_task){user, trainer_cast_grads, to, from, n}, stream);
}

static void norm(void *user, int64_t first, int64_t count, int64_t state_first, float *out, void *stream)
{
    replica *r = user;
    if (!r->hold)
        trainer_range_norm(r->t, first, count, state_first, out, stream);
}

static void norms(void *user, const float *all, int n, void *stream)
{
    replica *r = user;
    if (!r->hold)
        trainer_take_norms(r->t, all, n, stream);
}

static void update_all(void *user)
{
    replica *r = user;
    if (r->saver)
        checkpoint_before_update(r->saver, trainer_state_of(r->t).stream);
    if (!r->hold)
        trainer_update_all(r->t);
}

/* ---- making and freeing ---- */

static int rank_of(const replica_place *at)
{
    return at->l ? launch_rank(at->l) : 0;
}

static bool by_units(const char *name)
{
    const strategy *s = parallel_strategy(name);
    return s && s->grouping == GROUP_UNIT;
}

/* What this rank holds of the model, as its trainer will. */
static params *params_of(const step_options *o, const parallel_options *p)
{
    const bool split = o->split_layers.ranks > 1;
    const model_part whole = {0, o->config.layers, true, true};
    params *tensors =
        params_create_parts(&o->config, o->shard.small || split, split ? o->split_layers : (model_split){1, 0},
                            o->table ? o->table->parts : &whole, o->table ? o->table->part_count : 1);
    if (by_units(p->strategy))
        params_pad_units(tensors, parallel_granularity(p->ranks));
    else
        params_pad(tensors, parallel_granularity(p->ranks));
    return tensors;
}

/* Gains are counted by the first of the ranks that share layers, key and value heads by the first that has them. */
static bool counted_elsewhere(const step_options *o, const param_tensor *t)
{
    const model_split s = o->split_layers;
    return (param_is_gain(t->kind) && s.rank > 0) ||
           ((t->kind == PARAM_K || t->kind == PARAM_V) && s.rank % model_sharers_kv(&o->config, s.ranks) > 0);
}

static parallel_plan *plan_of(const replica *r, const parallel_options *p, char *why, size_t bytes)
{
    params *tensors = params_of(&r->o, p);
    const int units = params_units(tensors);
    int64_t *starts = xcalloc((unsigned long)tensors->count + 1, sizeof *starts), count;
    OWNED int64_t *unit_starts = xcalloc((unsigned long)units + 1, sizeof *unit_starts);
    OWNED bool *elsewhere = xcalloc((unsigned long)tensors->count, sizeof *elsewhere);
    for (int i = 0; i < tensors->count; i++) {
        starts[i] = tensors->tensors[i].first;
        elsewhere[i] = counted_elsewhere(&r->o, &tensors->tensors[i]);
    }
    starts[tensors->count] = unit_starts[units] = tensors->elements;
    for (int u = 0; u < units; u++)
        params_unit_range(tensors, u, &unit_starts[u], &count);
    const int grad_bytes = sb_dtype_bytes(step_sums_dtype(&r->o));
    const index_space space = {starts, tensors->count, unit_starts, units, r->o.shard.small, elsewhere};
    parallel_plan *plan = parallel_plan_create(p, rank_of(&r->at), &space, grad_bytes, why, bytes);
    free(starts);
    params_free(tensors);
    return plan;
}

/* The tensors that a rank holds, and which parts of them. */
static uint64_t hash_of(const params *p)
{
    uint64_t h = 0;
    for (int i = 0; i < p->count; i++) {
        const param_tensor *t = &p->tensors[i];
        h = rng_hash(h + (uint64_t)t->row_first * 0x9e3779b97f4a7c15u + (uint64_t)t->column_first, t->name);
    }
    return h;
}

/* Ranks of one strategy add up gradients: of the same parts of a model. */
static bool same_parts(const replica *r, const parallel_options *p, replica_problem *problem)
{
    if (!p->m.tp)
        return true;
    char why[160] = "";
    params *mine = params_of(&r->o, p);
    const uint64_t hash = hash_of(mine);
    OWNED uint64_t *all = launch_gathered(r->at.l, "parts", &hash, sizeof hash);
    mesh_group g = mesh_group_of(p->m, r->member ? launch_rank(r->at.l) : 0, MESH_DATA);
    for (int i = 0; i < g.count && r->member && !why[0]; i++)
        if (all[g.ranks[i]] != hash)
            snprintf(why, sizeof why,
                     "it would add its gradients to those of rank %d, which holds other parts of the model",
                     g.ranks[i]);
    mesh_group_free(&g);
    params_free(mine);
    return replica_agree(&r->at, "parts", !why[0], why, problem);
}

static bool make_plan(replica *r, const parallel_options *p, replica_problem *problem)
{
    char why[400] = "";
    const bool races = r->o.fusion == FUSION_GRAPH || r->o.overlap == OVERLAP_AUTO;
    if (p->ranks > 1 && races)
        snprintf(why, sizeof why,
                 "with more than one rank a trainer neither captures its step nor chooses its overlap");
    else if (p->ranks > 1 && !r->at.l)
        snprintf(why, sizeof why, "a process alone has one rank, not %d", p->ranks);
    else
        r->plan = plan_of(r, p, why, sizeof why);
    return replica_agree(&r->at, "plan", r->plan, why, problem);
}

comm_dtype replica_comm_dtype(sb_dtype t)
{
    return t == SB_BF16 ? COMM_BF16 : t == SB_FP16 ? COMM_FP16 : COMM_FP32; /* tf32 is fp32 in memory */
}

static parallel_model model_of(replica *r)
{
    if (!r->member)
        return (parallel_model){.d = r->at.d};
    const trainer_state s = trainer_state_of(r->t);
    return (parallel_model){.d = r->at.d,
                            .codes = s.codes.slices,
                            .codes_first = s.codes.first,
                            .codes_end = s.codes.end,
                            .main = s.stream,
                            .grad = s.grad,
                            .grad_dtype = replica_comm_dtype(s.grad_dtype),
                            .param = s.param,
                            .param_dtype = replica_comm_dtype(s.param_dtype),
                            .scratch = s.scratch,
                            .user = r,
                            .update_begin = update_begin,
                            .update = update,
                            .fused_update = fused_update,
                            .add = grads_add,
                            .cast = step_made_dtype(&r->o) == s.grad_dtype ? NULL : cast,
                            .norm = trainer_update_wants_all(r->t) ? norm : NULL,
                            .norms = norms,
                            .update_all = update_all};
}

static step_sharding sharding_of(const replica *r)
{
    const strategy *s = r->plan->s;
    step_sharding shard = r->o.shard; /* the caller says how far ahead it gathers */
    shard.ranks = s->grouping == GROUP_UNIT ? r->plan->slices : 0;
    shard.rank = r->plan->slice;
    shard.grads = s->gradients == GRADIENTS_SLICED;
    shard.params = s->parameters != PARAMETERS_RESIDENT;
    shard.held = s->parameters == PARAMETERS_HELD;
    shard.free_every = s->parameters == PARAMETERS_KEPT || shard.held ? 0 : shard.free_every > 1 ? shard.free_every : 1;
    return shard;
}

/* What the strategy asks of the trainer. */
static void set_options(replica *r)
{
    r->o.ranks = r->plan->o.ranks;
    r->o.micro_batches = r->plan->o.micro_batches;
    r->o.granularity = parallel_granularity(r->plan->o.ranks);
    /* 0 would mean all of it, so a rank that owns nothing holds one unused element. */
    r->o.state_elements = !r->plan->sharded ? 0 : r->plan->own.n ? r->plan->own.state_elements : 1;
    r->o.shard = sharding_of(r);
}

int64_t replica_planned_bytes(const replica_place *at, const step_options *o, const parallel_options *p)
{
    replica r = {.at = *at, .member = true, .o = *o};
    char why[400];
    int64_t bytes = -1;
    r.at.l = NULL;
    r.plan = plan_of(&r, p, why, sizeof why);
    if (r.plan) {
        set_options(&r);
        bytes = trainer_planned_bytes(at->d, at->kernels, at->ctx, &r.o);
    }
    parallel_plan_free(r.plan);
    return bytes;
}

static bool make_trainer(replica *r, replica_problem *problem)
{
    const replica_place *at = &r->at;
    char why[400] = "";
    if (r->plan)
        set_options(r);
    if (r->member)
        r->t = trainer_create(at->d, at->mem, at->kernels, at->ctx, &r->o, why, sizeof why);
    if (r->t && r->plan)
        r->plan->gathered_bytes = trainer_state_of(r->t).gathered_bytes;
    return replica_agree(at, "model", !r->member || r->t, why, problem) && replica_tune(at, r->t, &r->o, problem);
}

/* Ranks of data parallelism whose tokens are of the same sequences: neighbours, but for those that share layers. */
static bool open_sharers(replica *r, char *why, size_t why_bytes)
{
    const int n = r->o.context.ranks;
    const comm_options o = {.name = "sequences", .max_ctas = r->plan->o.max_ctas, .pairs = true};
    if (n < 2)
        return true;
    const mesh alone = {1, 1, r->plan->o.ranks / n, n, 1}, m = r->plan->o.m.cp > 1 ? r->plan->o.m : alone;
    const bool ok = comm_open_axes(r->at.l, r->at.d, NULL, m, MESH_CP, &o, &r->sharers, why, why_bytes);
    if (ok && r->member)
        context_connect(trainer_state_of(r->t).context, r->sharers, NULL);
    return ok;
}

/* A process alone needs none: its trainer updates by itself. */
static bool make_strategy(replica *r, replica_problem *problem)
{
    if (!r->at.l || !r->plan)
        return true;
    const parallel_model m = model_of(r);
    char why[400] = "";
    if (!replica_agree(&r->at, "sequences", open_sharers(r, why, sizeof why), why, problem))
        return false;
    r->p = parallel_create(r->at.l, r->plan, &m, why, sizeof why);
    if (!replica_agree(&r->at, "strategy", !r->member || r->p, why, problem))
        return false;
    if (r->member)
        trainer_set_hooks(r->t, &(step_hooks){r->p, parallel_begin_batch, parallel_need, on_ready, parallel_update,
                                              parallel_gather, parallel_await, parallel_grads, parallel_reduced,
                                              parallel_agree});
    return true;
}

replica *replica_create(const replica_place *at, const step_options *o, const parallel_options *p,
                        replica_problem *problem)
{
    replica *r = xcalloc(1, sizeof *r);
    *r = (replica){.at = *at, .o = *o, .communicating = true};
    r->member = rank_of(at) < (p->m.tp ? mesh_world(p->m) : p->ranks);
    scope_push("setup");
    bool ok = (!p->strategy || (same_parts(r, p, problem) && make_plan(r, p, problem))) && make_trainer(r, problem);
    if (ok)
        r->free_with_model = device_free_bytes(at->d);
    ok = ok && make_strategy(r, problem);
    scope_pop();
    if (ok)
        return r;
    replica_free(r);
    return NULL;
}

void replica_free(replica *r)
{
    if (!r)
        return;
    for (int i = 0; i < 2; i++)
        device_graph_destroy(r->at.d, r->graphs[i]);
    if (r->p)
        replica_settle(r);
    parallel_free(r->p);
    comm_destroy(r->sharers);
    trainer_free(r->t);
    parallel_plan_free(r->plan);
    free(r);
}

/* ---- steps ---- */

/* Ends the job, or the process that is alone. */
static void give_up(const replica *r, const char *what)
{
    if (r->at.l)
        launch_fail(r->at.l, EXIT_CODE_FAILURE, "%s: %s", what, sb_last_message());
    die(EXIT_CODE_FAILURE, "%s: %s", what, sb_last_message());
}

void replica_step(replica *r)
{
    watchdog_beat();
    if (!r->member)
        return;
    if (r->graphs[r->communicating])
        device_graph_launch(r->at.d, r->graphs[r->communicating]);
    else if (!trainer_step(r->t))
        give_up(r, "a step");
}

void replica_settle(replica *r)
{
    if (r->p)
        parallel_join(r->p);
    if (r->member)
        device_sync(r->at.d);
}

void replica_communicate(replica *r, bool on)
{
    r->communicating = on;
    if (r->p)
        parallel_communicate(r->p, on);
    if (r->sharers && r->member)
        trainer_state_of(r->t).context->moving = on;
}

void replica_collectives_alone(replica *r)
{
    parallel_collectives_alone(r->p);
    for (int i = 0; r->sharers && i < r->o.config.layers * step_micro_batches(&r->o); i++)
        context_moves_alone(trainer_state_of(r->t).context, trainer_state_of(r->t).stream);
}

static device_graph *capture(replica *r)
{
    if (!device_graph_begin(r->at.d))
        return NULL;
    if (!trainer_step(r->t))
        give_up(r, "a captured step");
    return device_graph_end(r->at.d);
}

bool replica_capture(replica *r, replica_problem *problem)
{
    const bool before = r->communicating;
    bool ok = true;
    replica_settle(r); /* a graph cannot wait for work that was enqueued before it */
    for (int on = 0; on < 2; on++) {
        replica_communicate(r, on);
        r->graphs[on] = r->member ? capture(r) : NULL;
        ok = ok && (r->graphs[on] || !r->member);
    }
    replica_communicate(r, before);
    return replica_agree(&r->at, "graph", ok, "the step can't be captured as a graph", problem);
}
