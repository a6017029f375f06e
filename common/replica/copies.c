/* SPDX-License-Identifier: MIT */
/* Hops by copies; see copies.h. A step raises a word in another rank's memory and lowers those in its own. A word is raised again
 * one step later at the earliest, and by then it was lowered: who opens has received before, and who has filled waited for
 * the place to be open. */
#include "common/replica/copies.h"

#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/replica/stages.h"

enum { SENDS = 4 /* to the rank behind and the one before, forward and backward */ };

struct copies {
    device *d;
    pipeline_shape shape;
    const int *ends;
    int rank, count;
    void **own;          /* (count) where tensors come here; NULL: they do not */
    copies_memory *of;   /* (ranks) */
    int64_t *places;     /* (ranks, count) */
    void *sends[SENDS];  /* streams; NULL: not used yet */
    void *opens;         /* which tells others that places are open */
    device_event **sent; /* (2, stages): the last tensor over a boundary has left */
};

typedef struct message {
    int number, from, to; /* ranks */
    device_event **sent;
} message;

static message message_of(const copies *c, const step_hop *h)
{
    const int front = stages_front(&c->shape, c->ends, h->layer), stages = pipeline_stages(&c->shape);
    const int from = front + h->backward, to = front + !h->backward;
    return (message){.number = (h->backward * stages + to) * c->shape.micros + h->micro,
                     .from = pipeline_rank(&c->shape, from),
                     .to = pipeline_rank(&c->shape, to),
                     .sent = &c->sent[h->backward * stages + front]};
}

static uint32_t *open_word(const copies *c, const message *m)
{
    return c->of[m->from].flags + m->number;
}

static uint32_t *full_word(const copies *c, const message *m)
{
    return c->of[m->to].flags + c->count + m->number;
}

/* Tensors of an edge leave in their order, and edges have streams of their own. */
static void *stream_to(copies *c, int to, bool backward)
{
    static const char *const names[SENDS] = {"f-behind", "f-before", "b-behind", "b-before"};
    const int i = 2 * backward + (to != (c->rank + 1) % c->shape.ranks);
    if (!c->sends[i])
        c->sends[i] = device_stream_create(c->d, STREAM_URGENT, names[i]);
    return c->sends[i];
}

/* ---- hooks ---- */

static void on_place(void *user, const step_hop *h)
{
    copies *c = user;
    c->own[message_of(c, h).number] = h->at;
}

static void on_open(void *user, const step_hop *h)
{
    copies *c = user;
    const message m = message_of(c, h);
    device_stream_follow(c->d, c->opens, device_stream(c->d));
    device_flag_raise(c->d, c->opens, open_word(c, &m));
}

static void on_receive(void *user, const step_hop *h)
{
    copies *c = user;
    const message m = message_of(c, h);
    device_flag_lower(c->d, device_stream(c->d), full_word(c, &m));
}

static void on_send(void *user, const step_hop *h)
{
    copies *c = user;
    const message m = message_of(c, h);
    void *stream = stream_to(c, m.to, h->backward);
    device_stream_follow(c->d, stream, device_stream(c->d));
    device_flag_lower(c->d, stream, open_word(c, &m));
    device_stream_copy(c->d, stream, c->of[m.to].base + c->places[m.to * c->count + m.number], h->at, h->bytes);
    device_flag_raise(c->d, stream, full_word(c, &m));
    device_stream_record(c->d, stream, *m.sent);
}

static void on_sent(void *user, const step_hop *h)
{
    copies *c = user;
    device_event_wait(c->d, *message_of(c, h).sent);
}

step_hops copies_hops(copies *c)
{
    return (step_hops){
        .user = c, .place = on_place, .open = on_open, .receive = on_receive, .send = on_send, .sent = on_sent};
}

/* ---- making ---- */

int copies_count(const pipeline_shape *s)
{
    return 2 * pipeline_stages(s) * s->micros;
}

copies *copies_create(device *d, const pipeline_shape *s, const int *ends, int rank)
{
    copies *c = xcalloc(1, sizeof *c);
    const int crossings = 2 * pipeline_stages(s);
    *c = (copies){.d = d, .shape = *s, .ends = ends, .rank = rank, .count = copies_count(s)};
    c->own = xcalloc((size_t)c->count, sizeof *c->own);
    c->of = xcalloc((size_t)s->ranks, sizeof *c->of);
    c->places = xcalloc((size_t)s->ranks * (size_t)c->count, sizeof *c->places);
    c->sent = xcalloc((size_t)crossings, sizeof(device_event *));
    for (int i = 0; i < crossings; i++)
        c->sent[i] = device_event_create(d);
    c->opens = device_stream_create(d, STREAM_URGENT, "opens");
    return c;
}

void copies_free(copies *c)
{
    if (!c)
        return;
    for (int i = 0; i < SENDS; i++)
        device_stream_destroy(c->d, c->sends[i]);
    device_stream_destroy(c->d, c->opens);
    for (int i = 0; i < 2 * pipeline_stages(&c->shape); i++)
        device_event_destroy(c->d, c->sent[i]);
    free(c->sent);
    free(c->own);
    free(c->of);
    free(c->places);
    free(c);
}

void copies_places(const copies *c, const void *base, int64_t *out)
{
    for (int i = 0; i < c->count; i++)
        out[i] = c->own[i] ? (const char *)c->own[i] - (const char *)base : -1;
}

void copies_connect(copies *c, const copies_memory *of, const int64_t *places)
{
    memcpy(c->of, of, (size_t)c->shape.ranks * sizeof *of);
    memcpy(c->places, places, (size_t)c->shape.ranks * (size_t)c->count * sizeof *places);
}

/* ---- a hop alone: the first boundary is between ranks 0 and 1 in every schedule ---- */

static void give(copies *c, const message *m, void *stream, const void *at, size_t bytes)
{
    device_stream_copy(c->d, stream, c->of[m->to].base + c->places[m->to * c->count + m->number], at, bytes);
    device_flag_raise(c->d, stream, full_word(c, m));
}

void *copies_round_stream(copies *c)
{
    return stream_to(c, 1 - c->rank, c->rank == 1);
}

void copies_round(copies *c, const void *at, size_t bytes)
{
    const message there = message_of(c, &(step_hop){.layer = c->ends[0]}),
                  back = message_of(c, &(step_hop){.layer = c->ends[0], .backward = true});
    void *stream = copies_round_stream(c);
    if (c->rank == 0)
        give(c, &there, stream, at, bytes);
    device_flag_lower(c->d, stream, full_word(c, c->rank == 0 ? &back : &there));
    if (c->rank == 1)
        give(c, &back, stream, at, bytes);
}
