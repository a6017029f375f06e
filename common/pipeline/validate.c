/* SPDX-License-Identifier: MIT */
/* Whether a table can be run, and gives what it should; see pipeline.h. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/pipeline/simulate.h"

typedef struct finding {
    char *out;
    size_t bytes;
} finding;

static bool wrong(const finding *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool wrong(const finding *f, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(f->out, f->bytes, fmt, args);
    va_end(args);
    return false;
}

static bool each_once(const pipeline_table *t, int rank, const finding *f)
{
    const pipeline_shape *s = &t->shape;
    const pipeline_action *a = pipeline_actions(t, rank);
    const int kinds = s->schedule->split ? 3 : 2, n = s->micros * s->chunks;
    unsigned char *seen = xcalloc((size_t)kinds * (size_t)n, 1);
    bool ok = true;
    for (int i = 0; i < t->count && ok; i++) {
        const bool known = a[i].kind < (pipeline_kind)kinds && a[i].micro >= 0 && a[i].micro < s->micros &&
                           a[i].chunk >= 0 && a[i].chunk < s->chunks;
        if (!known || seen[(int)a[i].kind * n + a[i].chunk * s->micros + a[i].micro]++)
            ok = wrong(f, "rank %d: action %d, %c of micro-batch %d, chunk %d, %s", rank, i, "FBW?"[a[i].kind & 3],
                       a[i].micro, a[i].chunk, known ? "comes twice, so that another is missing" : "does not exist");
    }
    free(seen);
    return ok;
}

static bool within_bound(const pipeline_table *t, int rank, const finding *f)
{
    const pipeline_action *a = pipeline_actions(t, rank);
    const pipeline_kind last = t->shape.schedule->split ? PIPELINE_W : PIPELINE_B;
    const int bound = pipeline_bound(&t->shape, rank);
    for (int i = 0, held = 0; i < t->count; i++) {
        held += (a[i].kind == PIPELINE_F) - (a[i].kind == last);
        if (held > bound)
            return wrong(f, "rank %d holds %d micro-batches of a chunk at action %d; its bound is %d", rank, held, i,
                         bound);
    }
    return true;
}

/* Weight gradients: a sum over micro-batches has one order whatever the schedule, and the chunks of a rank are complete from
 * the last to the first, the order in which parameters are laid out. */
static bool sums_in_order(const pipeline_table *t, int rank, const finding *f)
{
    const pipeline_action *a = pipeline_actions(t, rank);
    const pipeline_kind last = t->shape.schedule->split ? PIPELINE_W : PIPELINE_B;
    int *next = xcalloc((size_t)t->shape.chunks, sizeof *next), complete = t->shape.chunks;
    bool ok = true;
    for (int i = 0; i < t->count && ok; i++) {
        if (a[i].kind != last)
            continue;
        if (a[i].micro != next[a[i].chunk]++)
            ok = wrong(f, "rank %d: chunk %d adds the weight gradients of micro-batch %d before those of %d", rank,
                       a[i].chunk, a[i].micro, next[a[i].chunk] - 1);
        else if (next[a[i].chunk] == t->shape.micros && a[i].chunk != --complete)
            ok = wrong(f, "rank %d: the weight gradients of chunk %d are complete before those of chunk %d", rank,
                       a[i].chunk, complete);
    }
    free(next);
    return ok;
}

/* The n-th message of a kind that a rank sends to another, or receives from it; its stage is the sender's. */
typedef struct message {
    int stage, micro;
} message;

/* Messages of `kind` on the edge from one rank to another, in the order in which `rank`, one of the two, handles them. */
static int messages_of(const pipeline_table *t, int rank, int from, int to, pipeline_kind kind, message *out)
{
    const pipeline_shape *s = &t->shape;
    const int step = kind == PIPELINE_F ? 1 : -1;
    int n = 0;
    for (int i = 0; i < t->count; i++) {
        const pipeline_action a = pipeline_actions(t, rank)[i];
        const int own = pipeline_stage(s, rank, a.chunk), sender = rank == from ? own : own - step,
                  other = sender + step;
        if (a.kind == kind && sender >= 0 && other >= 0 && sender < pipeline_stages(s) && other < pipeline_stages(s) &&
            pipeline_rank(s, sender) == from && pipeline_rank(s, other) == to)
            out[n++] = (message){sender, a.micro};
    }
    return n;
}

static bool edge_in_order(const pipeline_table *t, int from, int to, pipeline_kind kind, const finding *f)
{
    const size_t most = (size_t)t->count;
    message *sent = xmalloc(2 * most * sizeof *sent), *received = sent + most;
    const int n = messages_of(t, from, from, to, kind, sent);
    bool ok = messages_of(t, to, from, to, kind, received) == n;
    int i = 0;
    for (; i < n && ok; i++)
        ok = sent[i].stage == received[i].stage && sent[i].micro == received[i].micro;
    if (!ok)
        wrong(f, "rank %d receives %s from rank %d in another order than they are sent, first at message %d", to,
              kind == PIPELINE_F ? "activations" : "gradients", from, i - 1);
    free(sent);
    return ok;
}

static bool edges_in_order(const pipeline_table *t, const finding *f)
{
    const int p = t->shape.ranks;
    for (int from = 0; from < p; from++) /* neighbours in the ring are all that talk */
        for (int side = -1; side <= 1; side += 2) {
            const int to = (from + side + p) % p;
            if (to != from &&
                (!edge_in_order(t, from, to, PIPELINE_F, f) || !edge_in_order(t, from, to, PIPELINE_B, f)))
                return false;
        }
    return true;
}

/* A circle of waits is a run that stands still, whatever the times. */
static bool ends(const pipeline_table *t, const finding *f)
{
    const size_t stages = (size_t)pipeline_stages(&t->shape);
    double *one = xmalloc(stages * sizeof *one);
    for (size_t i = 0; i < stages; i++)
        one[i] = 1;
    const pipeline_times times = pipeline_simulate(t, &(pipeline_costs){.f = one, .b = one, .w = one}, NULL);
    free(one);
    return !isnan(times.makespan) || wrong(f, "the run stands still: ranks wait for each other in a circle");
}

/* ---- as ranks run it: tensors have a place one action ahead, and stay in theirs until the next one ---- */

typedef struct hop_rank {
    int next;                          /* its action */
    bool open;                         /* and what that and the one behind it receive may be written */
    int sent[2][PIPELINE_CHUNKS_MOST]; /* the micro-batch that a chunk gave last, by kind; -1: none */
} hop_rank;

typedef struct hop_run {
    const pipeline_table *t;
    hop_rank *ranks;
    unsigned char *opened, *given; /* (2, stages, micros): what a stage receives */
} hop_run;

/* The stage at the other end of what an action receives (or gives), if another rank has it; -1: nothing moves. */
static int other_end(const pipeline_shape *s, int rank, pipeline_action a, bool gives)
{
    if (a.kind == PIPELINE_W)
        return -1;
    const int own = pipeline_stage(s, rank, a.chunk), other = own + ((a.kind == PIPELINE_F) == gives ? 1 : -1);
    return other < 0 || other >= pipeline_stages(s) || pipeline_rank(s, other) == rank ? -1 : other;
}

static size_t message_index(const pipeline_shape *s, pipeline_kind kind, int stage, int micro)
{
    return ((size_t)kind * (size_t)pipeline_stages(s) + (size_t)stage) * (size_t)s->micros + (size_t)micro;
}

/* A W right behind its B is a part of it. */
static bool part_of_b(const pipeline_action *a, int i)
{
    return i > 0 && a[i].kind == PIPELINE_W && a[i - 1].kind == PIPELINE_B && a[i].micro == a[i - 1].micro &&
           a[i].chunk == a[i - 1].chunk;
}

static void open_hops(hop_run *h, int rank, int i)
{
    const pipeline_shape *s = &h->t->shape;
    const pipeline_action *a = pipeline_actions(h->t, rank);
    for (int n = i; n < h->t->count && n <= i + 1; n++)
        if (other_end(s, rank, a[n], false) >= 0)
            h->opened[message_index(s, a[n].kind, pipeline_stage(s, rank, a[n].chunk), a[n].micro)] = 1;
}

/* Runs the next action of a rank, if it need not wait. */
static bool run_hops(hop_run *h, int rank)
{
    const pipeline_shape *s = &h->t->shape;
    hop_rank *r = &h->ranks[rank];
    const pipeline_action *actions = pipeline_actions(h->t, rank), a = actions[r->next];
    if (!r->open && !part_of_b(actions, r->next))
        open_hops(h, rank, r->next);
    r->open = true;
    if (other_end(s, rank, a, false) >= 0 &&
        !h->given[message_index(s, a.kind, pipeline_stage(s, rank, a.chunk), a.micro)])
        return false;
    const int to = other_end(s, rank, a, true);
    if (to >= 0) {
        int *sent = &r->sent[a.kind][a.chunk];
        if (*sent >= 0 && !h->opened[message_index(s, a.kind, to, *sent)])
            return false;
        *sent = a.micro;
        h->given[message_index(s, a.kind, to, a.micro)] = 1;
    }
    r->next++;
    r->open = false;
    return true;
}

static bool hops_end(const pipeline_table *t, const finding *f)
{
    const pipeline_shape *s = &t->shape;
    const size_t messages = 2 * (size_t)pipeline_stages(s) * (size_t)s->micros;
    hop_run h = {t, xcalloc((size_t)s->ranks, sizeof *h.ranks), xcalloc(2 * messages, 1), NULL};
    h.given = h.opened + messages;
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < 2 * PIPELINE_CHUNKS_MOST; i++)
            h.ranks[r].sent[i / PIPELINE_CHUNKS_MOST][i % PIPELINE_CHUNKS_MOST] = -1;
    for (bool ran = true; ran;) {
        ran = false;
        for (int r = 0; r < s->ranks; r++)
            while (h.ranks[r].next < t->count && run_hops(&h, r))
                ran = true;
    }
    bool ok = true;
    for (int r = 0; r < s->ranks && ok; r++)
        if (h.ranks[r].next < t->count)
            ok = wrong(
                f,
                "rank %d stands still at action %d: tensors have a place one action ahead and no sooner, and what "
                "a chunk sent before must have one when it sends again",
                r, h.ranks[r].next);
    free(h.ranks);
    free(h.opened);
    return ok;
}

const char *pipeline_invalid(const pipeline_table *t, char *out, size_t out_bytes)
{
    const finding f = {out, out_bytes};
    for (int r = 0; r < t->shape.ranks; r++)
        if (!each_once(t, r, &f) || !within_bound(t, r, &f) || !sums_in_order(t, r, &f))
            return out;
    return edges_in_order(t, &f) && ends(t, &f) && hops_end(t, &f) ? NULL : out;
}
