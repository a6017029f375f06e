/* SPDX-License-Identifier: MIT */
/* Creates and frees the resources of a strategy: communicators, streams, memory, and the ranges of its updates. */
#include <stdio.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/parallel/internal.h"

static const int64_t update_elements = 16 << 20; /* fewer keep GPU memory busy for no longer than a few launches take */

/* ---- ranges of updates ---- */

static bool range_full(const parallel *p, const update_range *u)
{
    const int64_t least = p->plan->o.update_elements ? p->plan->o.update_elements : update_elements;
    if (p->order == UPDATE_AFTER || p->s->grouped)
        return false;
    return strategy_slices(p->s) || u->to - u->from >= least;
}

static void make_ranges(parallel *p)
{
    const buckets *b = &p->plan->b;
    const ownership *own = &p->plan->own;
    p->ranges = xcalloc((unsigned long)b->n, sizeof *p->ranges);
    for (int i = 0, owned = 0; i < b->n; i++) {
        update_range *u = p->range_count ? &p->ranges[p->range_count - 1] : NULL;
        if (!u || range_full(p, u)) {
            u = &p->ranges[p->range_count++];
            while (owned < own->n && own->r[owned].first + own->r[owned].count <= b->b[i].first)
                owned++;
            *u = (update_range){.first = i, .from = b->b[i].first, .owned = owned};
        }
        u->count++;
        u->to = b->b[i].first + b->b[i].count;
    }
}

/* ---- making ---- */

static const unsigned model_axes = MESH_PP | MESH_TP; /* whose ranks have other parameters */

/* Who has what differs: the ranks that share slices, and those that have other parts of the model. */
static unsigned norm_axes(const parallel *p)
{
    const bool whole = p->s->reduce == REDUCE_ALL;
    return model_axes | (whole ? 0 : p->s->reduce == REDUCE_HYBRID ? MESH_FSDP : MESH_DATA);
}

/* On all ranks or on none. */
static bool wants_norms(const parallel *p)
{
    return p->most_norms && (p->plan->sharded || mesh_group_size(p->plan->m, model_axes) > 1);
}

static bool adds_slices(const parallel *p)
{
    return p->plan->o.micro_batches > 1 && p->s->gradients == GRADIENTS_SLICED;
}

static bool casts(const parallel *p)
{
    return p->m.cast && p->s->gradients == GRADIENTS_SLICED;
}

static int64_t largest_bucket(const parallel *p)
{
    int64_t most = 0;
    for (int i = 0; i < p->plan->b.n; i++)
        most = p->plan->b.b[i].count > most ? p->plan->b.b[i].count : most;
    return most;
}

static int64_t most_owned(const parallel *p, bool whole) /* of units that are not cut, too, or of slices alone */
{
    int64_t most = 0;
    for (int i = 0; i < p->plan->own.n - (whole ? 0 : p->plan->whole); i++)
        most = p->plan->own.r[i].count > most ? p->plan->own.r[i].count : most;
    return most;
}

static update_order order_of(const parallel *p)
{
    const bool at_once = device_kind_of(p->m.d) == DEVICE_CPU && !p->m.main; /* updates run on the calling thread */
    const update_order wanted = wants_norms(p) ? UPDATE_AFTER : p->plan->o.update;
    if (strategy_fused(p->s) && wanted == UPDATE_AFTER)
        return UPDATE_BUCKETS;
    return wanted == UPDATE_BACKWARD && (at_once || p->s->when == WHEN_AFTER) ? UPDATE_BUCKETS : wanted;
}

/* What a member needs. Returns false if there is not enough memory. */
static bool make_resources(parallel *p)
{
    const size_t bytes = (size_t)p->plan->elements * comm_dtype_bytes(p->m.grad_dtype);
    p->order = order_of(p);
    p->communicating = true;
    p->reduce_stream = device_stream_create(p->m.d, STREAM_URGENT, "grads");
    if (p->gather_comm)
        p->gather_stream = device_stream_create(p->m.d, STREAM_URGENT, "params");
    if (p->replica_comm)
        p->replica_stream = device_stream_create(p->m.d, STREAM_URGENT, "replicas");
    if (p->order == UPDATE_BACKWARD)
        p->update_stream =
            device_stream_create(p->m.d, strategy_fused(p->s) ? STREAM_URGENT : STREAM_BACKGROUND, "update");
    if (p->s->packed)
        p->copy = device_malloc(p->m.d, bytes);
    p->edges = xcalloc((unsigned long)p->plan->b.n, sizeof *p->edges);
    make_ranges(p);
    if (casts(p))
        p->produced_grads = device_malloc(p->m.d, (size_t)largest_bucket(p) * comm_dtype_bytes(p->m.grad_dtype));
    if (adds_slices(p))
        p->batch_sum = device_malloc(p->m.d, (size_t)most_owned(p, true) * comm_dtype_bytes(p->m.grad_dtype));
    if (wants_norms(p)) {
        const size_t bytes_of_norms = (size_t)p->most_norms * sizeof *p->norms;
        p->norms = device_malloc(p->m.d, bytes_of_norms);
        p->all_norms = device_malloc(p->m.d, bytes_of_norms * (size_t)comm_size(p->norm_comm));
        if (p->norms)
            device_memset(p->m.d, p->norms, 0, bytes_of_norms);
    }
    return (!p->s->packed || p->copy) && (!casts(p) || p->produced_grads) && (!adds_slices(p) || p->batch_sum) &&
           (!wants_norms(p) || (p->norms && p->all_norms));
}

/* The communicators of these axes, by a split unless `of` is NULL. A group of one rank has one, too: its slices move. */
static bool open_comm(const parallel *p, comm *of, const char *name, unsigned axes, comm **out, char *why, size_t bytes)
{
    mesh_group g = parallel_plan_group(p->plan, launch_rank(p->l), axes);
    const comm_options o = {.name = name, .members = g.ranks, .ranks = g.count, .max_ctas = p->plan->o.max_ctas};
    *out = of ? comm_split(of, &o, why, bytes) : comm_create(p->l, p->m.d, &o, why, bytes);
    mesh_group_free(&g);
    return *out;
}

static bool open_communicators(parallel *p, char *why, size_t why_bytes)
{
    const bool hybrid = p->s->reduce == REDUCE_HYBRID, two = strategy_slices(p->s) && !strategy_fused(p->s);
    const unsigned slices = hybrid ? MESH_FSDP : MESH_DATA;
    bool ok =
        open_comm(p, NULL, hybrid ? "all" : "grads", MESH_DATA, hybrid ? &p->all : &p->reduce_comm, why, why_bytes);
    comm *all = hybrid ? p->all : p->reduce_comm;
    if (hybrid)
        ok = ok && open_comm(p, all, "grads", slices, &p->reduce_comm, why, why_bytes) &&
             open_comm(p, all, "replicas", MESH_DP_REPLICATE, &p->replica_comm, why, why_bytes);
    ok = ok && (!two || open_comm(p, all, "params", slices, &p->gather_comm, why, why_bytes));
    if (ok && p->most_norms && mesh_group_size(p->plan->m, model_axes) > 1)
        ok = open_comm(p, NULL, "norms", norm_axes(p), &p->model_comm, why, why_bytes);
    p->norm_comm = p->model_comm ? p->model_comm : p->s->reduce == REDUCE_ALL ? NULL : p->reduce_comm;
    return ok;
}

/* Every rank of the job calls this. Returns false with a sentence if parameters are to be read where they can't be. */
static bool open_peers(parallel *p, char *why, size_t why_bytes)
{
    char reason[300];
    if (p->plan->o.gather == GATHER_COLLECTIVE || p->s->share != SHARE_ON_USE)
        return true;
    p->peers = p->m.peers;
    if (p->peers)
        return true;
    mesh_group g = parallel_plan_group(p->plan, launch_rank(p->l), MESH_DATA);
    const bool codes = launch_all(p->l, "codes", p->plan->rank >= p->plan->o.ranks || p->m.codes);
    p->memory = peer_memory_open(p->l, p->m.d, g.ranks, g.count, p->m.param, reason, sizeof reason);
    if (p->memory && codes)
        p->code_memory = peer_memory_open(p->l, p->m.d, g.ranks, g.count, (void *)p->m.codes, reason, sizeof reason);
    mesh_group_free(&g);
    if (!p->memory || (codes && !p->code_memory)) {
        snprintf(why, why_bytes, "slices can't be read from other GPUs: %s", reason);
        return false;
    }
    p->peers = peer_memory_at(p->memory);
    p->code_peers = p->code_memory ? peer_memory_at(p->code_memory) : NULL;
    return true;
}

/* Likewise memory where other ranks' gradients arrive. */
static bool open_received(parallel *p, char *why, size_t why_bytes)
{
    char reason[300];
    if (p->plan->o.reduce != GATHER_COPY || p->s->gradients != GRADIENTS_SLICED)
        return true;
    p->most_received = most_owned(p, false);
    const size_t bytes = 2 * (size_t)(p->plan->slices * p->most_received) * comm_dtype_bytes(p->m.grad_dtype);
    p->received = p->m.received;
    if (p->received)
        return true;
    p->own_received = bytes ? device_malloc(p->m.d, bytes) : NULL;
    mesh_group g = parallel_plan_group(p->plan, launch_rank(p->l), MESH_DATA);
    if (launch_all(p->l, "received", !bytes || p->own_received))
        p->received_memory = peer_memory_open(p->l, p->m.d, g.ranks, g.count, p->own_received, reason, sizeof reason);
    else
        snprintf(reason, sizeof reason, "a rank has no memory for them");
    mesh_group_free(&g);
    if (!p->received_memory) {
        snprintf(why, why_bytes, "gradients can't be sent to other GPUs: %s", reason);
        return false;
    }
    p->received = peer_memory_at(p->received_memory);
    return true;
}

/* No member reads what another has shown, and frees next. */
static void close_peers(parallel *p)
{
    const bool ran = p->gather_stream && (p->peers || p->received); /* as on all members */
    if (ran)
        parallel_meet(p, p->gather_comm, p->gather_stream);
    peer_memory_close(p->received_memory);
    peer_memory_close(p->code_memory);
    peer_memory_close(p->memory);
    if (ran)
        parallel_meet(p, p->gather_comm, p->gather_stream);
}

parallel *parallel_create(launch *l, const parallel_plan *plan, const parallel_model *m, char *why, size_t why_bytes)
{
    const bool member = plan->rank < plan->o.ranks;
    parallel *p = xcalloc(1, sizeof *p);
    *p = (parallel){.plan = plan, .s = plan->s, .m = *m, .l = l};
    p->most_norms = (int)launch_most(l, "norms", m->norm ? plan->norms : 0, launch_size(l));
    why[0] = 0;
    if (!open_communicators(p, why, why_bytes)) {
        parallel_free(p);
        return NULL;
    }
    if (!open_peers(p, why, why_bytes) || !open_received(p, why, why_bytes)) {
        parallel_free(p);
        return NULL;
    }
    if (strategy_fused(p->s) && m->norm)
        die(EXIT_CODE_FAILURE, "bug: '%s' with statistics over all gradients", plan->o.strategy);
    const bool made = !member || make_resources(p);
    bool all = launch_all(l, "strategy", made);
    why[0] = 0;
    if (all && strategy_fused(p->s))
        all = parallel_fused_open(p, why, why_bytes);
    else if (!all)
        snprintf(why, why_bytes, made ? "another rank has no memory for '%s'" : "no memory for what '%s' needs",
                 plan->o.strategy);
    if (!all || !member) {
        parallel_free(p);
        return NULL;
    }
    parallel_sync(p);
    return p;
}

const char *parallel_backend(const parallel *p)
{
    return p->gates ? "peer memory" : comm_backend(p->reduce_comm);
}

/* ---- ending ---- */

static void drop_events(const parallel *p, device_event *const *e, int n)
{
    for (int i = 0; i < n; i++)
        device_event_destroy(p->m.d, e[i]);
}

static void drop_all_events(const parallel *p)
{
    drop_events(p, (device_event *[]){p->opened, p->shared, p->normed, p->agreed, p->meeting}, 5);
    for (int i = 0; p->edges && i < p->plan->b.n; i++)
        drop_events(p, (device_event *[]){p->edges[i].gathered, p->edges[i].reduced}, 2);
    for (int i = 0; i < p->range_count; i++)
        device_event_destroy(p->m.d, p->ranges[i].done);
    for (int i = 0; i < p->wait_room; i++)
        drop_events(p, (device_event *[]){p->waits[i].from, p->waits[i].to}, 2);
}

void parallel_free(parallel *p)
{
    if (!p)
        return;
    close_peers(p);
    parallel_fused_close(p);
    comm_destroy(p->model_comm); /* after its ops */
    comm_destroy(p->replica_comm);
    comm_destroy(p->gather_comm);
    comm_destroy(p->reduce_comm);
    comm_destroy(p->all);
    device_stream_destroy(p->m.d, p->replica_stream);
    device_stream_destroy(p->m.d, p->gather_stream);
    device_stream_destroy(p->m.d, p->reduce_stream);
    device_stream_destroy(p->m.d, p->update_stream);
    drop_all_events(p);
    void *const held[] = {p->own_received, p->copy, p->produced_grads, p->batch_sum, p->norms, p->all_norms};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        device_free(p->m.d, held[i]);
    free(p->edges);
    free(p->ranges);
    free(p->waits);
    free(p);
}
