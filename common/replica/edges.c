/* SPDX-License-Identifier: MIT */
/* Tensors between the ranks of a pipeline: by copies (copies.c), for which memory is opened here, or by the library of the device
 * (NCCL, Gloo). There each edge, from one rank to another for one kind of tensor, has a communicator of its own, so that no
 * transfer stands in front of another one: NCCL runs the ops of a communicator in their order. Edges are made at set-up, connected at once. A receive is posted when its memory is open, one
 * action ahead (common/step/hops.c), and waits on its stream for the sender.
 * Limit: NCCL's receives hold multiprocessors while they wait, as many as max_ctas. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/stats.h"
#include "common/replica/stages.h"

#include "common/comm/peer.h"
#include "common/replica/copies.h"

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

    bool copy;
    copies *copies;              /* of the same trainer; NULL: the library moves tensors, or there is no trainer */
    uint32_t *flags;             /* this rank's words */
    peer_memory *words, *places; /* of all ranks */
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

edges *edges_open(launch *l, device *d, mesh m, bool copy, int max_ctas, char *why, size_t why_bytes)
{
    if (copy && peer_unreachable(l, d, m.pp, why, why_bytes))
        return NULL;
    edges *e = xcalloc(1, sizeof *e);
    const int ranks = m.pp, all = mesh_world(m), inside = all / ranks, rank = launch_rank(l);
    *e = (edges){.l = l,
                 .d = d,
                 .ranks = ranks,
                 .rank = rank < all ? rank / inside : -1,
                 .ring = {rank % inside, inside},
                 .copy = copy};
    e->of = xcalloc(4 * (size_t)ranks, sizeof *e->of);
    bool ok = (e->all = comm_create(l, d, &(comm_options){.name = "pipeline", .ranks = all}, why, why_bytes));
    for (int from = 0; from < ranks && ok && !copy; from++)
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
        device_stream_destroy(e->d, e->of[i].stream);
    }
    comm_destroy(e->all);
    drop_crossings(e);
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

static int front_of(const edges *e, const step_hop *h)
{
    return stages_front(&e->shape, e->ends, h->layer);
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

static void on_open(void *user, const step_hop *h)
{
    edges *e = user;
    edge *w = edge_of(e, h);
    crossing *x = crossing_of(e, h);
    device_stream_follow(e->d, w->stream, device_stream(e->d));
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
    device_stream_follow(e->d, w->stream, device_stream(e->d));
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
    if (e->copy) {
        e->copies = copies_create(e->d, s, ends, e->rank);
        return copies_hops(e->copies);
    }
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

/* ---- memory of the other ranks ---- */

static void show_words(edges *e, const pipeline_shape *s)
{
    const size_t bytes = 2 * (size_t)copies_count(s) * sizeof *e->flags;
    e->flags = device_malloc(e->d, bytes);
    if (!e->flags)
        launch_fail(e->l, EXIT_CODE_FAILURE, "no memory for %zu bytes of words between stages", bytes);
    device_memset(e->d, e->flags, 0, bytes);
    device_sync(e->d);
}

bool edges_connect(edges *e, trainer *t, const pipeline_shape *s, char *why, size_t why_bytes)
{
    if (!e->copy)
        return true;
    const size_t n = (size_t)copies_count(s);
    OWNED int64_t *mine = xcalloc(n, sizeof *mine), *ring = xcalloc(n * (size_t)s->ranks, sizeof *ring);
    copies_memory of[SB_DIRECT_RANKS_MAX] = {{NULL, NULL}};
    int members[SB_DIRECT_RANKS_MAX];
    if (t) {
        show_words(e, s);
        trainer_rehearse(t);
        copies_places(e->copies, trainer_state_of(t).scratch, mine);
    }
    OWNED int64_t *all = launch_gathered(e->l, "places", mine, n * sizeof *mine);
    for (int p = 0; p < s->ranks; p++) {
        members[p] = e->ring[0] + e->ring[1] * p;
        memcpy(ring + (size_t)p * n, all + (size_t)members[p] * n, n * sizeof *ring);
    }
    e->words = peer_memory_open(e->l, e->d, members, s->ranks, e->flags, why, why_bytes);
    if (e->words)
        e->places =
            peer_memory_open(e->l, e->d, members, s->ranks, t ? trainer_state_of(t).scratch : NULL, why, why_bytes);
    for (int p = 0; p < s->ranks && e->places; p++)
        of[p] = (copies_memory){peer_memory_at(e->places)[p], peer_memory_at(e->words)[p]};
    if (t && e->places)
        copies_connect(e->copies, of, ring);
    return e->places != NULL;
}

void edges_disconnect(edges *e)
{
    if (!e->copy)
        return;
    device_sync(e->d);
    launch_barrier(e->l, "stages are done"); /* none may still send where another unmaps or frees */
    peer_memory_close(e->places);
    peer_memory_close(e->words);
    launch_barrier(e->l, "stages are apart");
    device_free(e->d, e->flags);
    copies_free(e->copies);
    e->copies = NULL;
    e->places = e->words = NULL;
    e->flags = NULL;
}

/* ---- a hop alone ---- */

static void library_round(edges *e, void *at, size_t bytes)
{
    const edge *there = edge_between(e, 0, 1, false), *back = edge_between(e, 1, 0, true);
    if (e->rank == 0)
        comm_send(there->c, at, words_of(bytes), COMM_INT32, TO, there->stream);
    comm_recv((e->rank == 0 ? back : there)->c, at, words_of(bytes), COMM_INT32, FROM, there->stream);
    if (e->rank == 1)
        comm_send(back->c, at, words_of(bytes), COMM_INT32, TO, there->stream);
}

static double hop_ms(edges *e, void *at, size_t bytes)
{
    enum { ROUNDS = 12, WARM = 2 };
    samples ms = {0};
    device_event *from = device_event_create(e->d), *to = device_event_create(e->d);
    void *stream = e->copy ? copies_round_stream(e->copies) : edge_between(e, 0, 1, false)->stream;
    for (int i = 0; i < ROUNDS; i++) {
        device_stream_record(e->d, stream, from);
        if (e->copy)
            copies_round(e->copies, at, bytes);
        else
            library_round(e, at, bytes);
        device_stream_record(e->d, stream, to);
        const double round = device_event_ms(e->d, from, to);
        if (i >= WARM)
            samples_add(&ms, round / 2);
    }
    const double median = stats_of(&ms).median;
    samples_free(&ms);
    device_event_destroy(e->d, from);
    device_event_destroy(e->d, to);
    return median;
}

double edges_hop_ms(edges *e, void *at, size_t bytes)
{
    double ms = NAN;
    comm_barrier(e->all, device_stream(e->d));
    device_sync(e->d);
    if (e->rank < 2)
        ms = hop_ms(e, at, bytes);
    comm_barrier(e->all, device_stream(e->d));
    device_sync(e->d);
    return ms;
}
