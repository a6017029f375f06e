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
    const pipeline_times times = pipeline_simulate(t, &(pipeline_costs){one, one, one, 0}, NULL);
    free(one);
    return !isnan(times.makespan) || wrong(f, "the run stands still: ranks wait for each other in a circle");
}

const char *pipeline_invalid(const pipeline_table *t, char *out, size_t out_bytes)
{
    const finding f = {out, out_bytes};
    for (int r = 0; r < t->shape.ranks; r++)
        if (!each_once(t, r, &f) || !within_bound(t, r, &f) || !sums_in_order(t, r, &f))
            return out;
    return edges_in_order(t, &f) && ends(t, &f) ? NULL : out;
}
