/* SPDX-License-Identifier: MIT */
/* Tensors between the ranks of a pipeline by the library of the device (NCCL, Gloo). Each edge, from one rank to another for one
 * kind of tensor, has a communicator of its own, so that no transfer stands in front of another one: NCCL runs the ops of a
 * communicator in their order. Edges are made at set-up, connected at once. A receive is posted when its memory is open, one
 * action ahead (common/step/hops.c), and waits on its stream for the sender.
 * Limit: NCCL's receives hold multiprocessors while they wait, as many as max_ctas. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/core/stats.h"
#include "common/replica/stages.h"

enum { FROM, TO, ENDS_OF_AN_EDGE, AHEAD = 2 /* receives of a kind that one stage has posted, at most */ };

typedef struct edge {
    int from, to;
    bool backward;
    comm *c;
    void *stream; /* NULL: this rank is at neither end */
} edge;

typedef struct crossing { /* of one boundary between stages, in one direction */
    device_event *arrived[AHEAD], *sent;
    int opened, received;
} crossing;

struct edges {
    launch *l;
    device *d;
    int ranks, rank, count;    /* of a ring; the place in it, -1: no member */
    int ring[ENDS_OF_AN_EDGE]; /* the rank of the job at place p is ring[0] + ring[1] p */
    comm *all;
    edge *of;
    pipeline_shape shape; /* of the trainer that uses them */
    const int *ends;
    crossing *crossings; /* (stages, 2) */
    int room;
    device_event *now; /* what main has so far */
};

/* ---- making ---- */

static bool open_edge(edges *e, int from, int to, bool backward, int max_ctas, char *why, size_t why_bytes)
{
    const int members[ENDS_OF_AN_EDGE] = {e->ring[0] + e->ring[1] * from, e->ring[0] + e->ring[1] * to};
    const bool mine = e->rank == from || e->rank == to;
    char name[32];
    snprintf(name, sizeof name, "%c%d-%d", backward ? 'b' : 'f', from, to);
    const comm_options o = {
        .name = name, .members = members, .ranks = ENDS_OF_AN_EDGE, .max_ctas = max_ctas, .pairs = true};
    comm *c = comm_split(e->all, &o, why, why_bytes);
    if (!c)
        return false;
    e->of[e->count++] = (edge){from, to, backward, c, mine ? device_stream_create(e->d, STREAM_URGENT, name) : NULL};
    return true;
}

edges *edges_open(launch *l, device *d, mesh m, int max_ctas, char *why, size_t why_bytes)
{
    edges *e = xcalloc(1, sizeof *e);
    const int ranks = m.pp, all = mesh_world(m), inside = all / ranks, rank = launch_rank(l);
    *e = (edges){
        .l = l, .d = d, .ranks = ranks, .rank = rank < all ? rank / inside : -1, .ring = {rank % inside, inside}};
    e->of = xcalloc(4 * (size_t)ranks, sizeof *e->of);
    e->now = device_event_create(d);
    bool ok = (e->all = comm_create(l, d, &(comm_options){.name = "pipeline", .ranks = all}, why, why_bytes));
    for (int from = 0; from < ranks && ok; from++)
        for (int side = 0; side < 2 && ok; side++) {
            const int to = (from + (side ? ranks - 1 : 1)) % ranks;
            if (to == from || (ranks == 2 && side))
                continue;
            for (int backward = 0; backward < 2 && ok; backward++)
                ok = open_edge(e, from, to, backward, max_ctas, why, why_bytes);
        }
    if (ok)
        return e;
    edges_close(e);
    return NULL;
}

static void drop_crossings(edges *e)
{
    for (int i = 0; i < e->room; i++) {
        for (int k = 0; k < AHEAD; k++)
            device_event_destroy(e->d, e->crossings[i].arrived[k]);
        device_event_destroy(e->d, e->crossings[i].sent);
    }
    free(e->crossings);
    e->crossings = NULL;
    e->room = 0;
}

void edges_close(edges *e)
{
    if (!e)
        return;
    for (int i = 0; i < e->count; i++) {
        comm_destroy(e->of[i].c);
        if (e->of[i].stream)
            device_stream_destroy(e->d, e->of[i].stream);
    }
    comm_destroy(e->all);
    drop_crossings(e);
    device_event_destroy(e->d, e->now);
    free(e->of);
    free(e);
}

comm *edges_all(const edges *e)
{
    return e->all;
}

/* ---- hops ---- */

static edge *edge_between(edges *e, int from, int to, bool backward)
{
    for (int i = 0; i < e->count; i++)
        if (e->of[i].from == from && e->of[i].to == to && e->of[i].backward == backward)
            return &e->of[i];
    die(EXIT_CODE_FAILURE, "bug: a pipeline has no edge from rank %d to rank %d", from, to);
}

/* The stage in front of the boundary that a hop crosses. */
static int front_of(const edges *e, const step_hop *h)
{
    int s = 0;
    while (e->ends[s] != h->layer && s < pipeline_stages(&e->shape) - 1)
        s++;
    return s;
}

static edge *edge_of(edges *e, const step_hop *h)
{
    const int front = pipeline_rank(&e->shape, front_of(e, h)), behind = pipeline_rank(&e->shape, front_of(e, h) + 1);
    return edge_between(e, h->backward ? behind : front, h->backward ? front : behind, h->backward);
}

static crossing *crossing_of(edges *e, const step_hop *h)
{
    return &e->crossings[2 * front_of(e, h) + h->backward];
}

/* Bytes move as words of 4, whatever they mean. */
static size_t words_of(size_t bytes)
{
    if (bytes % comm_dtype_bytes(COMM_INT32) != 0)
        die(EXIT_CODE_FAILURE, "bug: a hop of %zu bytes is no multiple of 4", bytes);
    return bytes / comm_dtype_bytes(COMM_INT32);
}

static void behind_main(edges *e, void *stream)
{
    device_event_record(e->d, e->now);
    device_stream_wait(e->d, stream, e->now);
}

static void on_open(void *user, const step_hop *h)
{
    edges *e = user;
    edge *w = edge_of(e, h);
    crossing *x = crossing_of(e, h);
    behind_main(e, w->stream);
    comm_recv(w->c, h->at, words_of(h->bytes), COMM_INT32, FROM, w->stream);
    device_stream_record(e->d, w->stream, x->arrived[x->opened++ % AHEAD]);
}

static void on_receive(void *user, const step_hop *h)
{
    edges *e = user;
    crossing *x = crossing_of(e, h);
    device_event_wait(e->d, x->arrived[x->received++ % AHEAD]);
}

static void on_send(void *user, const step_hop *h)
{
    edges *e = user;
    edge *w = edge_of(e, h);
    behind_main(e, w->stream);
    comm_send(w->c, h->at, words_of(h->bytes), COMM_INT32, TO, w->stream);
    device_stream_record(e->d, w->stream, crossing_of(e, h)->sent);
}

static void on_sent(void *user, const step_hop *h)
{
    edges *e = user;
    device_event_wait(e->d, crossing_of(e, h)->sent);
}

step_hops edges_hops(edges *e, const pipeline_shape *s, const int *ends)
{
    drop_crossings(e);
    e->shape = *s;
    e->ends = ends;
    e->room = 2 * pipeline_stages(s);
    e->crossings = xcalloc((size_t)e->room, sizeof *e->crossings);
    for (int i = 0; i < e->room; i++) {
        for (int k = 0; k < AHEAD; k++)
            e->crossings[i].arrived[k] = device_event_create(e->d);
        e->crossings[i].sent = device_event_create(e->d);
    }
    return (step_hops){.user = e, .open = on_open, .receive = on_receive, .send = on_send, .sent = on_sent};
}

/* ---- a hop alone ---- */

double edges_hop_ms(edges *e, void *at, size_t bytes)
{
    enum { ROUNDS = 12, WARM = 2 };
    samples ms = {0};
    device_event *from = device_event_create(e->d), *to = device_event_create(e->d);
    comm_barrier(e->all, device_stream(e->d));
    for (int i = 0; i < ROUNDS && e->rank < 2; i++) {
        edge *there = edge_between(e, 0, 1, false), *back = edge_between(e, 1, 0, true);
        edge *first = e->rank == 0 ? there : back; /* this rank sends on it */
        void *stream = there->stream;
        device_stream_record(e->d, stream, from);
        if (e->rank == 0)
            comm_send(first->c, at, words_of(bytes), COMM_INT32, TO, stream);
        comm_recv((e->rank == 0 ? back : there)->c, at, words_of(bytes), COMM_INT32, FROM, stream);
        if (e->rank == 1)
            comm_send(first->c, at, words_of(bytes), COMM_INT32, TO, stream);
        device_stream_record(e->d, stream, to);
        if (i >= WARM)
            samples_add(&ms, device_event_ms(e->d, from, to) / 2);
        else
            device_event_sync(e->d, to);
    }
    comm_barrier(e->all, device_stream(e->d));
    device_sync(e->d);
    const double median = stats_of(&ms).median;
    samples_free(&ms);
    device_event_destroy(e->d, from);
    device_event_destroy(e->d, to);
    return median;
}
