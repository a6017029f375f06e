/* SPDX-License-Identifier: MIT */
/* Who holds what when; see history.h. */
#include "common/train/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

timeline timeline_of(const trainer *t)
{
    static const char *const names[MEMORY_KINDS] = {[MEMORY_PARAM] = "parameters",
                                                    [MEMORY_MASTER] = "master weights",
                                                    [MEMORY_MOMENT1] = "first moments",
                                                    [MEMORY_MOMENT2] = "second moments",
                                                    [MEMORY_OTHER] = "tokens and tables"};
    const trainer_memory m = trainer_memory_of(t);
    const arena_event *of_step;
    const size_t n = arena_events(trainer_arena(t), &of_step);
    timeline x = {xcalloc(n + MEMORY_KINDS, sizeof *x.events), 0, m.arena_bytes};
    int id = 0; /* behind those of the arena */
    for (size_t i = 0; i < n; i++)
        id = of_step[i].id >= id ? of_step[i].id + 1 : id;
    for (int k = 0; k < MEMORY_KINDS; k++)
        if (m.resident[k] > 0)
            x.events[x.count++] = (arena_event){.phase = PHASE_INIT,
                                                .id = id++,
                                                .kind = (memory_kind)k,
                                                .layer = -1,
                                                .name = names[k] ? names[k] : memory_kind_name((memory_kind)k),
                                                .bytes = m.resident[k],
                                                .offset = -1};
    memcpy(x.events + x.count, of_step, n * sizeof *of_step);
    x.count += n;
    return x;
}

void timeline_free(timeline *x)
{
    free(x->events);
    *x = (timeline){0};
}

static void advance(timeline_moment *m, const timeline *x, size_t event)
{
    const arena_event *e = &x->events[event];
    m->event = event;
    m->held[e->kind] += e->bytes;
    m->total += e->bytes;
}

timeline_moment timeline_peak(const timeline *x)
{
    timeline_moment now = {0}, worst = {0};
    for (size_t i = 0; i < x->count; i++) {
        advance(&now, x, i);
        if (now.total > worst.total)
            worst = now;
    }
    return worst;
}

/* ---- checks ---- */

static bool apart(const arena_event *a, const arena_event *b)
{
    return a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
}

bool timeline_valid(const timeline *x, char *why, size_t why_bytes)
{
    OWNED const arena_event **held = xmalloc((x->count ? x->count : 1) * sizeof *held);
    size_t n = 0;
    bool valid = true;
    for (size_t i = 0; i < x->count && valid; i++) {
        const arena_event *e = &x->events[i];
        if (e->offset < 0)
            continue;
        if (e->bytes < 0) {
            size_t k = 0;
            while (k < n && held[k]->id != e->id)
                k++;
            valid = k < n && held[k]->bytes == -e->bytes;
            if (valid)
                held[k] = held[--n];
            else
                snprintf(why, why_bytes, "%s of block %d is released, but not held", e->name, e->layer);
            continue;
        }
        valid = e->offset + e->bytes <= x->arena_bytes;
        if (!valid)
            snprintf(why, why_bytes, "%s of block %d lies outside the arena", e->name, e->layer);
        for (size_t k = 0; k < n && valid; k++) {
            valid = apart(held[k], e);
            if (!valid)
                snprintf(why, why_bytes, "%s of block %d lies over %s of block %d", e->name, e->layer, held[k]->name,
                         held[k]->layer);
        }
        held[n++] = e;
    }
    return valid;
}

int64_t timeline_saved_by(const timeline *x, int layer)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < x->count && x->events[i].phase <= PHASE_FORWARD; i++)
        if (x->events[i].kind == MEMORY_ACTIVATION && x->events[i].layer == layer)
            bytes += x->events[i].bytes;
    return bytes;
}

/* ---- the largest ---- */

static bool alike(const arena_event *a, const arena_event *b)
{
    return a->bytes == b->bytes && a->kind == b->kind && a->phase == b->phase && strcmp(a->name, b->name) == 0;
}

/* Larger first, then in program order. */
static int by_size(const void *a, const void *b)
{
    const allocation *x = a, *y = b;
    if (x->first->bytes != y->first->bytes)
        return x->first->bytes < y->first->bytes ? 1 : -1;
    return x->first < y->first ? -1 : 1;
}

size_t timeline_largest(const timeline *x, allocation *out, size_t n)
{
    OWNED allocation *all = xmalloc((x->count ? x->count : 1) * sizeof *all);
    size_t kinds = 0;
    for (size_t i = 0; i < x->count; i++) {
        const arena_event *e = &x->events[i];
        if (e->bytes < 0 || e->offset < 0)
            continue;
        size_t k = 0;
        while (k < kinds && !alike(all[k].first, e))
            k++;
        if (k == kinds)
            all[kinds++] = (allocation){e, 0, e->layer, e->layer};
        all[k].times++;
        all[k].lowest_layer = e->layer < all[k].lowest_layer ? e->layer : all[k].lowest_layer;
        all[k].highest_layer = e->layer > all[k].highest_layer ? e->layer : all[k].highest_layer;
    }
    qsort(all, kinds, sizeof *all, by_size);
    const size_t given = kinds < n ? kinds : n;
    memcpy(out, all, given * sizeof *all);
    return given;
}

void allocation_describe(const allocation *a, char *out, size_t out_bytes)
{
    const arena_event *e = a->first;
    char where[64] = "";
    if (a->highest_layer > a->lowest_layer)
        snprintf(where, sizeof where, ", blocks %d to %d", a->lowest_layer, a->highest_layer);
    else if (a->highest_layer >= 0)
        snprintf(where, sizeof where, ", block %d", a->highest_layer);
    snprintf(out, out_bytes, "%9.2f MiB  %s (%s), made in %s%s%s", (double)e->bytes / (1 << 20), e->name,
             memory_kind_name(e->kind), step_phase_name(e->phase), where, a->times > 1 ? "" : ", once");
    if (a->times > 1) {
        const size_t used = strlen(out);
        snprintf(out + used, out_bytes - used, ", %d times", a->times);
    }
}

/* ---- the file ---- */

bool timeline_write(const timeline *x, const char *path, const char *title)
{
    enum { SHOWN = 5 };
    FILE *out = fopen(path, "w");
    if (!out)
        return false;
    allocation largest[SHOWN];
    const size_t shown = timeline_largest(x, largest, SHOWN);
    fprintf(out, "# %s\n# The largest allocations of the step:\n", title);
    for (size_t i = 0; i < shown; i++) {
        char text[160];
        allocation_describe(&largest[i], text, sizeof text);
        fprintf(out, "# %s\n", text);
    }
    fprintf(out, "event,phase,op,kind,layer,name,id,bytes,offset,live_bytes");
    for (int k = 0; k < MEMORY_KINDS; k++)
        fprintf(out, ",%s_bytes", memory_kind_name((memory_kind)k));
    fputc('\n', out);
    timeline_moment now = {0};
    for (size_t i = 0; i < x->count; i++) {
        const arena_event *e = &x->events[i];
        advance(&now, x, i);
        fprintf(out, "%zu,%s,%d,%s,%d,%s,%d,%lld,%lld,%lld", i, step_phase_name(e->phase), e->op,
                memory_kind_name(e->kind), e->layer, e->name, e->id, (long long)e->bytes, (long long)e->offset,
                (long long)now.total);
        for (int k = 0; k < MEMORY_KINDS; k++)
            fprintf(out, ",%lld", (long long)now.held[k]);
        fputc('\n', out);
    }
    return file_close(out);
}
