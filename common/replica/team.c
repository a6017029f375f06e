/* SPDX-License-Identifier: MIT */
/* Makes, steps and frees a trainer's part on every rank that shares the layers of a model; see team.h. */
#include "common/replica/team_copy.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/core/text.h"
#include "common/record/nvtx.h"

/* clang-format off */
const team_way team_ways[] = {
    {"all-reduce", false, false, false, "all rows of norms and residuals on every rank; sums by all-reduce"},
    {"nccl", true, false, false, "each rank has its own rows of them; inputs by all-gather, sums by reduce-scatter (Gloo on the CPU)"},
    {"copy", true, true, false, "the same, piece by piece: copy engines put rows into the others' memory while products run"},
    {"push", true, true, true, "the same, but products write parts of sums into the memory of the rank that adds them"},
    {0}};
/* clang-format on */

const team_way *team_way_find(const char *name)
{
    const team_way *w = team_ways;
    while (w->name && !text_is(w->name, name))
        w++;
    return w->name ? w : NULL;
}

/* Which part of each layer this rank has. */
static int part_of(const team *x)
{
    const int rank = x->member ? x->rank : 0, inside = mesh_group_size(x->m, MESH_DATA);
    return x->fault == TEAM_ORDER ? rank / inside % x->m.tp : mesh_coords(x->m, rank).tp;
}

/* ---- what ranks give each other ---- */

/* Where nothing is sent, this rank's numbers stand for those of the others: products of what lies in memory by chance could be of
 * NaN, at which a GPU takes little power, and is the faster for it. */
static void stand_in(team *x, void *to, const void *from, size_t bytes, void *stream)
{
    if (!x->r->communicating && to != from)
        device_stream_copy(x->at.d, stream, to, from, bytes);
}

/* The first sum of a micro-batch is that of the embedding, and rows of ids that others hold are zero before it: at zero, a norm's
 * gradient is some hundred times what comes in, in each block. Rows of this rank's table stand for them. */
static void stand_in_embedding(team *x, void *rows, size_t bytes, void *stream)
{
    const param_tensor *table = params_find(trainer_params(x->t), PARAM_EMBEDDING, -1);
    const trainer_state s = trainer_state_of(x->t);
    const int micro_batches = step_micro_batches(&x->o), sums = x->step_sums / micro_batches;
    if (x->r->communicating || !table || x->o.shard.params || sums == 0 || x->sums % sums != 0 ||
        s.param_dtype != x->o.precision->activations)
        return;
    const size_t element = (size_t)sb_dtype_bytes(s.param_dtype), most = (size_t)table->count * element;
    const char *from = (const char *)s.param + (size_t)table->first * element;
    for (size_t at = 0; at < bytes; at += most)
        device_stream_copy(x->at.d, stream, (char *)rows + at, from, bytes - at < most ? bytes - at : most);
}

static void begin(void *user)
{
    team *x = user;
    x->sums = 0;
    if (x->w)
        team_copy_begin(x);
}

static void gather(void *user, const void *mine, void *all, size_t count, sb_dtype t, void *stream)
{
    team *x = user;
    const comm_dtype type = replica_comm_dtype(t);
    const size_t bytes = count * comm_dtype_bytes(type);
    for (int k = 0; k < x->m.tp; k++)
        stand_in(x, (char *)all + (size_t)k * bytes, mine, bytes, stream);
    team_give(x, (team_op){OP_GATHER, x->all, mine, all, count, type, 0}, stream);
    if (team_breaks(x, TEAM_CHUNK))
        device_copy(x->at.d, all, mine, bytes);
}

/* One rank's part of the second sum of a step, which is that of a product, becomes nothing. */
static void leave_out(team *x, const void *partial, size_t bytes)
{
    if (x->sums++ == 1 && team_breaks(x, TEAM_PARTIAL))
        device_memset(x->at.d, (void *)partial, 0, bytes);
}

static void scatter(void *user, const void *partial, void *mine, size_t count, sb_dtype t, void *stream)
{
    team *x = user;
    const comm_dtype type = replica_comm_dtype(t);
    const size_t bytes = count * comm_dtype_bytes(type);
    stand_in(x, mine, (const char *)partial + (size_t)part_of(x) * bytes, bytes, stream);
    stand_in_embedding(x, mine, bytes, stream);
    leave_out(x, partial, bytes * (size_t)x->m.tp);
    team_give(x, (team_op){OP_SCATTER, x->all, partial, mine, count, type, 0}, stream);
    team_break_number(x, mine, t);
}

static void sum(void *user, void *values, size_t count, sb_dtype t, void *stream)
{
    team *x = user;
    const comm_dtype type = replica_comm_dtype(t);
    stand_in_embedding(x, values, count * comm_dtype_bytes(type), stream);
    leave_out(x, values, count * comm_dtype_bytes(type));
    team_give(x, (team_op){OP_SUM, x->all, values, values, count, type, 0}, stream);
    team_break_number(x, values, t);
}

static void sum_gains(void *user, void *values, size_t count, sb_dtype t, void *stream)
{
    team *x = user;
    if (x->fault != TEAM_GAIN && x->w)
        team_copy_sum(x, x->all, values, count, t, stream);
    else if (x->fault != TEAM_GAIN)
        team_give(x, (team_op){OP_SUM, x->all, values, values, count, replica_comm_dtype(t), 0}, stream);
}

static void sum_keys(void *user, void *values, size_t count, sb_dtype t, void *stream)
{
    team *x = user;
    if (x->fault != TEAM_KEY && x->w)
        team_copy_sum(x, x->keys, values, count, t, stream);
    else if (x->fault != TEAM_KEY)
        team_give(x, (team_op){OP_SUM, x->keys, values, values, count, replica_comm_dtype(t), 0}, stream);
}

static void break_loss(void *user, sb_vocab_loss *p)
{
    const team *x = user;
    p->first_id += x->fault == TEAM_VOCAB;
    p->columns = x->fault == TEAM_PADDING ? p->ld : p->columns;
}

/* ---- making and freeing ---- */

/* Neighbours that hold the same key and value heads: as a mesh, the inner part of tp. */
static bool open_groups(team *x, int max_ctas, char *why, size_t why_bytes)
{
    const comm_options o = {.name = "layers", .max_ctas = max_ctas};
    const int sharers = model_sharers_kv(&x->o.config, x->m.tp);
    mesh pairs = x->m;
    pairs.cp *= pairs.tp / sharers;
    pairs.tp = sharers;
    return comm_open_axes(x->at.l, x->at.d, NULL, x->m, MESH_TP, &o, &x->all, why, why_bytes) &&
           comm_open_axes(x->at.l, x->at.d, NULL, pairs, MESH_TP, &o, &x->keys, why, why_bytes);
}

/* Each rank counts all that it has. */
static void count_all(parallel_plan *plan)
{
    if (plan->norms > 0) {
        plan->norms = 1;
        plan->normed[0] = (owned_range){plan->own.r[0].first, plan->own.state_elements, 0};
    }
}

/* With a strategy where ranks add up something. Alone among its data a rank has nothing to add up but norms. */
static bool make_replica(team *x, const team_options *how, replica_problem *problem)
{
    enum { BUCKET_BYTES = 25 << 20 };
    const int data = mesh_group_size(x->m, MESH_DATA);
    const bool shares = !x->alone && (data > 1 || (x->o.clip_norm > 0 && x->ranks > 1));
    const char *name = data == 1 ? "flat" : how->strategy ? how->strategy : "bucketed";
    parallel_options p = {.strategy = shares ? name : NULL,
                          .ranks = data,
                          .m = x->m,
                          .bucket_bytes = BUCKET_BYTES,
                          .max_ctas = how->max_ctas,
                          .micro_batches = step_micro_batches(&x->o),
                          .join = how->join};
    if (x->fault == TEAM_GROUPS)
        p.m = x->m.tp > 1 ? (mesh){x->ranks / data, 1, data, 1, 1} : (mesh){1, 1, data, 1, x->ranks / data};
    x->o.shard.small = shares && x->m.tp > 1 && parallel_strategy(name)->grouping == GROUP_UNIT;
    x->r = replica_create(&x->at, &x->o, &p, problem);
    if (!x->r)
        return false;
    x->t = x->r->t;
    x->o = x->r->o;
    if (shares && x->fault == TEAM_NORM)
        count_all(x->r->plan);
    return true;
}

/* As a rank has them: two chunks of each. */
static void share_sequences(team *x)
{
    if (x->alone || x->m.cp == 1)
        return;
    x->o.seq /= x->m.cp;
    x->o.context = (step_context){.ranks = x->m.cp,
                                  .rank = x->member ? mesh_coords(x->m, x->rank).cp : 0,
                                  .fault = x->fault == TEAM_OWN ? CONTEXT_OWN : CONTEXT_NONE};
}

static bool open_team(team *x, const team_options *how, replica_problem *problem)
{
    char why[400] = "";
    const model_config *c = &x->o.config;
    const bool apart = !x->alone && how->way->rows_apart && x->m.tp > 1;
    const mesh_model asked = {.heads = c->heads,
                              .heads_kv = c->heads_kv,
                              .d_ff = c->d_ff,
                              .seq = x->o.seq,
                              .batch = apart ? x->o.batch : 0}; /* only then are rows shared out */
    const bool ok =
        x->alone || (!mesh_problem(x->m, &asked, why, sizeof why) && open_groups(x, how->max_ctas, why, sizeof why));
    if (!replica_agree(&x->at, "mesh", ok, why, problem))
        return false;
    share_sequences(x);
    if (!x->alone && x->m.tp > 1)
        x->o.split_layers = (model_split){x->m.tp, part_of(x)};
    x->o.rows_apart = apart;
    x->o.windows = apart && how->way->windows;
    x->o.push = x->o.windows && how->way->push;
    return make_replica(x, how, problem) &&
           (!x->o.windows || replica_agree(&x->at, "windows", team_copy_open(x, why, sizeof why), why, problem));
}

static void set_hooks(team *x)
{
    step_share share = {.user = x,
                        .begin = begin,
                        .gather = gather,
                        .scatter = scatter,
                        .sum = sum,
                        .sum_gains = sum_gains,
                        .sum_kv = sum_keys,
                        .loss = break_loss};
    if (x->w)
        team_copy_hooks(&share);
    trainer_set_share(x->t, &share);
}

static int data_place(mesh m, int rank)
{
    mesh_group g = mesh_group_of(m, rank, MESH_DATA);
    const int place = g.mine;
    mesh_group_free(&g);
    return place;
}

team *team_create(const replica_place *at, const step_options *o, const team_options *how, replica_problem *problem)
{
    team *x = xcalloc(1, sizeof *x);
    const int rank = launch_rank(at->l), ranks = mesh_world(how->m);
    *x = (team){
        .at = *at, .member = rank < ranks, .alone = !how->way, .m = how->m, .ranks = ranks, .rank = rank, .o = *o};
    x->fault = how->fault;
    x->data = x->member && !x->alone ? data_place(x->m, rank) : 0;
    x->free_before = device_free_bytes(at->d);
    scope_push("setup");
    const bool ok = open_team(x, how, problem);
    scope_pop();
    if (!ok) {
        team_free(x);
        return NULL;
    }
    if (x->member && x->o.split_layers.ranks > 1)
        set_hooks(x);
    return x;
}

void team_set_tokens(team *x, uint64_t seed)
{
    if (x->member)
        replica_set_tokens(x->t, seed, x->data);
}

void team_free(team *x)
{
    if (!x)
        return;
    team_settle(x);
    team_copy_close(x);
    replica_free(x->r);
    comm_destroy(x->keys);
    comm_destroy(x->all);
    free(x->ops);
    free(x);
}

/* ---- steps ---- */

void team_step(team *x)
{
    replica_step(x->r);
    x->step_sums = x->steps++ == 0 ? x->sums : x->step_sums;
}

void team_settle(team *x)
{
    if (x->r)
        replica_settle(x->r);
}

void team_communicate(team *x, bool on)
{
    replica_communicate(x->r, on);
}

void team_alone(team *x)
{
    if (x->r->p)
        replica_collectives_alone(x->r);
    if (x->w) {
        windows_quiet(x->w, false);
        windows_begin(x->w, trainer_state_of(x->t).stream);
    }
    for (int i = 0; i < x->op_count; i++)
        if (x->ops[i].c)
            team_enqueue(&x->ops[i], trainer_state_of(x->t).stream);
        else
            team_copy_alone(x, &x->ops[i]);
}

bool team_capture(team *x, replica_problem *problem)
{
    return replica_capture(x->r, problem);
}

const char *team_backend(const team *x)
{
    return x->all ? comm_backend(x->all) : x->r->p ? parallel_backend(x->r->p) : "";
}

double team_data_bytes(const team *x)
{
    return x->r->plan ? replica_wire_bytes(x->r) : 0;
}
