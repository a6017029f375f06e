/* SPDX-License-Identifier: MIT */
/* See train_run.h. */
#ifdef HAVE_CUDA
#include "kernels/cuda/matmul/algorithm.h"
#endif
#include "tests/gpu/train/run.h"

#include "common/core/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEW_REPEATS = 5, LARGE = 16 << 20 /* bytes that a call writes, of which fewer repeats are made */ };

train_bed bed_open(runner *r)
{
    train_bed bed = {.r = r, .done = device_event_create(r->dev)};
    for (int i = 0; i < 2; i++)
        bed.streams[i] = device_stream_create(r->dev, STREAM_NORMAL, "test");
    return bed;
}

void bed_close(train_bed *bed)
{
    for (int i = 0; i < 2; i++)
        device_stream_destroy(bed->r->dev, bed->streams[i]);
    device_event_destroy(bed->r->dev, bed->done);
}

/* ---- instances ---- */

static size_t slot_bytes(const slot *s)
{
    return s->n * slot_element_bytes(s);
}

instance instance_create(const train_bed *bed, const train_case *c)
{
    runner *r = bed->r;
    instance x = {.c = c, .call = {.kernels = r->kernels, .ctx = r->ctx, .stream = device_stream(r->dev)}};
    for (int i = 0; i < c->slot_count; i++) {
        const slot *s = &c->slots[i];
        x.slots[i] = guarded_create(r, slot_bytes(s));
        x.call.at[i] = x.slots[i].data + s->lead * slot_element_bytes(s);
        device_upload(r->dev, x.slots[i].data, s->before, slot_bytes(s));
    }
    x.call.workspace_bytes = c->op->workspace ? c->op->workspace(c, r->kernels, r->ctx) : 0;
    if (x.call.workspace_bytes > 0)
        x.workspace = guarded_create(r, x.call.workspace_bytes);
    x.call.workspace = x.workspace.data;
    return x;
}

void instance_free(const train_bed *bed, instance *x)
{
    for (int i = 0; i < x->c->slot_count; i++)
        guarded_free(bed->r, &x->slots[i]);
    guarded_free(bed->r, &x->workspace);
}

void instance_reset(const train_bed *bed, instance *x)
{
    device *d = bed->r->dev;
    for (int i = 0; i < x->c->slot_count; i++) {
        const slot *s = &x->c->slots[i];
        if (s->role == SLOT_OUT)
            device_memset(d, x->slots[i].data, 0xff, slot_bytes(s));
        else if (s->role == SLOT_INOUT)
            device_upload(d, x->slots[i].data, s->before, slot_bytes(s));
    }
    if (x->workspace.bytes > 0)
        device_memset(d, x->workspace.data, 0xff, x->workspace.bytes);
    device_sync(d);
}

left_behind left_of(const train_bed *bed, const instance *x)
{
    left_behind l = {{0}};
    device_sync(bed->r->dev);
    for (int i = 0; i < x->c->slot_count; i++) {
        const slot *s = &x->c->slots[i];
        if (s->role == SLOT_IN)
            continue;
        l.slots[i] = xmalloc(slot_bytes(s));
        device_download(bed->r->dev, l.slots[i], x->slots[i].data, slot_bytes(s));
    }
    return l;
}

void left_free(left_behind *l)
{
    for (int i = 0; i < MAX_SLOTS; i++)
        free(l->slots[i]);
}

bool instance_run(const train_bed *bed, instance *x, const char *mode)
{
    instance_reset(bed, x);
    const sb_status s = x->c->op->run(x->c, &x->call);
    device_sync(bed->r->dev);
    return s == SB_OK || case_fail(bed->r, x->c, "refused%s: %s", mode, sb_last_message());
}

bool instance_same(const train_bed *bed, const instance *x, const left_behind *first, const char *mode)
{
    left_behind now = left_of(bed, x);
    bool ok = true;
    for (int i = 0; i < x->c->slot_count && ok; i++) {
        const slot *s = &x->c->slots[i];
        if (s->role != SLOT_IN && memcmp(now.slots[i], first->slots[i], slot_bytes(s)) != 0)
            ok = case_fail(bed->r, x->c, "%s: other bits%s than the first time", s->name, mode);
    }
    left_free(&now);
    return ok;
}

bool instance_slot_equals(const train_bed *bed, const instance *x, int slot_index, const guarded *other,
                          const char *what)
{
    const slot *s = &x->c->slots[slot_index];
    const size_t bytes = slot_bytes(s);
    OWNED unsigned char *here = xmalloc(bytes), *there = xmalloc(bytes);
    device_sync(bed->r->dev);
    device_download(bed->r->dev, here, x->slots[slot_index].data, bytes);
    device_download(bed->r->dev, there, other->data, bytes);
    const bool same = memcmp(here, there, bytes) == 0;
    return same || case_fail(bed->r, x->c, "%s: other bits than %s", s->name, what);
}

/* Everything that a call may write is as it was before. */
static bool instance_untouched(const train_bed *bed, const instance *x)
{
    left_behind now = left_of(bed, x);
    bool ok = true;
    for (int i = 0; i < x->c->slot_count; i++) {
        const slot *s = &x->c->slots[i];
        ok = ok && (s->role == SLOT_IN || memcmp(now.slots[i], s->before, slot_bytes(s)) == 0);
    }
    left_free(&now);
    return ok;
}

bool instance_right(const train_bed *bed, const instance *x, const char *mode)
{
    left_behind now = left_of(bed, x);
    double worst = 0;
    const bool ok = case_judge(bed->r, x->c, now.slots, mode, &worst);
    left_free(&now);
    return ok;
}

sb_matmul_choice own_choice(const char kernel[8], int value)
{
    sb_matmul_choice choice = {.tried = 1};
#ifdef HAVE_CUDA
    matmul_own own = {.value = value};
    memcpy(&own.kernel, kernel, sizeof own.kernel);
    choice.library = (int64_t)cublasLtGetVersion();
    memcpy(choice.algorithm, &own, sizeof own);
#else
    (void)kernel, (void)value; /* the CPU's products take any choice */
#endif
    snprintf(choice.name, sizeof choice.name, "own, by hand");
    return choice;
}

/* ---- the checks of every case ---- */

/* Guards and inputs are as they were. */
static bool check_surroundings(const train_bed *bed, const instance *x)
{
    for (int i = 0; i < x->c->slot_count; i++) {
        const slot *s = &x->c->slots[i];
        if (!guarded_intact(bed->r, &x->slots[i]))
            return case_fail(bed->r, x->c, "bytes around %s were written", s->name);
        if (s->role != SLOT_IN)
            continue;
        OWNED unsigned char *now = xmalloc(slot_bytes(s));
        device_download(bed->r->dev, now, x->slots[i].data, slot_bytes(s));
        const bool same = memcmp(now, s->before, slot_bytes(s)) == 0;
        if (!same)
            return case_fail(bed->r, x->c, "%s was written, and is only an input", s->name);
    }
    if (x->workspace.bytes > 0 && !guarded_intact(bed->r, &x->workspace))
        return case_fail(bed->r, x->c, "bytes around the workspace were written");
    return true;
}

static bool check_repeats(const train_bed *bed, instance *x, const left_behind *first)
{
    size_t written = 0;
    for (int i = 0; i < x->c->slot_count; i++)
        written += x->c->slots[i].role == SLOT_IN ? 0 : slot_bytes(&x->c->slots[i]);
    const int repeats = written > LARGE && bed->r->repeats > FEW_REPEATS ? FEW_REPEATS : bed->r->repeats;
    for (int i = 1; i < repeats; i++)
        if (!instance_run(bed, x, " again") || !instance_same(bed, x, first, " again"))
            return false;
    return true;
}

/* The same call on two streams at once, each with slots and a workspace of its own. */
static bool check_streams(const train_bed *bed, instance *x, const left_behind *first)
{
    device *d = bed->r->dev;
    instance other = instance_create(bed, x->c), *both[2] = {x, &other};
    void *const usual = x->call.stream;
    bool ok = true;
    for (int i = 0; i < 2; i++)
        instance_reset(bed, both[i]);
    for (int i = 0; i < 2 && ok; i++) {
        both[i]->call.stream = bed->streams[i];
        if (x->c->op->run(x->c, &both[i]->call) != SB_OK)
            ok = case_fail(bed->r, x->c, "refused on another stream: %s", sb_last_message());
    }
    for (int i = 0; i < 2; i++) {
        device_stream_record(d, bed->streams[i], bed->done);
        device_event_wait(d, bed->done);
    }
    for (int i = 0; i < 2 && ok; i++)
        ok = instance_same(bed, both[i], first, i ? " on the second of two streams" : " on the first of two streams") &&
             check_surroundings(bed, both[i]);
    x->call.stream = usual;
    device_sync(d);
    instance_free(bed, &other);
    return ok;
}

static bool check_graph(const train_bed *bed, instance *x, const left_behind *first)
{
    device *d = bed->r->dev;
    instance_reset(bed, x);
    if (!device_graph_begin(d))
        return true; /* the CPU has none */
    const sb_status s = x->c->op->run(x->c, &x->call);
    device_graph *graph = device_graph_end(d);
    bool ok = true;
    if (s != SB_OK)
        ok = case_fail(bed->r, x->c, "refused while a graph is captured: %s", sb_last_message());
    else if (!graph)
        ok = case_fail(bed->r, x->c, "what was captured is no graph");
    else if (!instance_untouched(bed, x))
        ok = case_fail(bed->r, x->c, "something ran while a graph was captured");
    for (int i = 0; i < 2 && ok; i++) {
        instance_reset(bed, x);
        device_graph_launch(d, graph);
        ok = instance_same(bed, x, first, " from a graph");
    }
    if (graph)
        device_graph_destroy(d, graph);
    return ok;
}

/* A workspace that is a byte too small is refused before anything is written, or is enough. */
static bool check_small_workspace(const train_bed *bed, instance *x)
{
    if (x->call.workspace_bytes == 0)
        return true;
    bool ok = true;
    instance_reset(bed, x);
    x->call.workspace_bytes--;
    const sb_status s = x->c->op->run(x->c, &x->call);
    x->call.workspace_bytes++;
    if (s == SB_OK)
        ok = instance_right(bed, x, " with a smaller workspace");
    else if (s != SB_NO_MEMORY)
        ok = case_fail(bed->r, x->c, "%s, not SB_NO_MEMORY, for too small a workspace: %s", sb_status_name(s),
                       sb_last_message());
    else if (!instance_untouched(bed, x))
        ok = case_fail(bed->r, x->c, "too small a workspace was refused after something was written");
    return ok;
}

static bool check_all(train_bed *bed, instance *x, double *worst)
{
    left_behind first = left_of(bed, x);
    const bool ok = case_judge(bed->r, x->c, first.slots, "", worst) && check_surroundings(bed, x) &&
                    check_repeats(bed, x, &first) && check_graph(bed, x, &first) && check_streams(bed, x, &first) &&
                    check_small_workspace(bed, x) && check_surroundings(bed, x) &&
                    (!x->c->op->more || x->c->op->more(bed, x->c));
    left_free(&first);
    return ok;
}

void run_train_case(train_bed *bed, train_case *c)
{
    runner *r = bed->r;
    tally *t = runner_tally(r, c->op->name, c->dtype);
    double worst = 0;
    phase_set("%s %s %s", c->op->name, c->dtype, c->name);
    instance x = instance_create(bed, c);
    instance_reset(bed, &x);
    const sb_status s = c->op->run(c, &x.call);
    device_sync(r->dev);
    if (s == SB_UNSUPPORTED && c->may_be_unsupported) {
        t->skipped++;
        snprintf(t->skip_reason, sizeof t->skip_reason, "%.200s", sb_last_message());
    } else {
        const bool ok =
            s == SB_OK ? check_all(bed, &x, &worst) : case_fail(r, c, "%s: %s", sb_status_name(s), sb_last_message());
        t->passed += ok;
        t->failed += !ok;
        t->worst = fmax(t->worst, worst);
    }
    instance_free(bed, &x);
}
