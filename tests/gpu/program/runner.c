/* SPDX-License-Identifier: MIT */
/* Guarded buffers and the tally. */
#include "tests/gpu/program/runner.h"

#include "common/core/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 1024, FIRST_SLAB = 64 << 20 };

/* Buffers lie in it one behind the other, and it is empty again when the last of them is freed. */
typedef struct slab {
    unsigned char *data;
    size_t bytes, used;
    size_t wanted; /* by all buffers that were there at once */
    int buffers;   /* those included that did not fit */
} slab;

struct slab *slab_create(void)
{
    return xcalloc(1, sizeof(slab));
}

void slab_free(const runner *r)
{
    if (r->slab->data)
        device_free(r->dev, r->slab->data);
    free(r->slab);
}

static bool is_in_slab(const runner *r, const unsigned char *p)
{
    return r->slab->data && p >= r->slab->data && p < r->slab->data + r->slab->bytes;
}

/* An empty slab grows to what was wanted the last time. */
static void slab_grow(const runner *r)
{
    slab *s = r->slab;
    const size_t bytes = s->wanted > FIRST_SLAB ? s->wanted + s->wanted / 4 : FIRST_SLAB;
    s->used = s->wanted = 0;
    if (s->bytes >= bytes)
        return;
    if (s->data)
        device_free(r->dev, s->data);
    s->data = device_malloc(r->dev, bytes);
    s->bytes = s->data ? bytes : 0;
}

static unsigned char *take(const runner *r, size_t bytes)
{
    slab *s = r->slab;
    const size_t aligned = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (r->zone_bytes == 0)
        return device_malloc(r->dev, bytes); /* compute-sanitizer shall see where it ends */
    if (s->buffers++ == 0)
        slab_grow(r);
    s->wanted += aligned;
    if (s->bytes - s->used < aligned)
        return device_malloc(r->dev, bytes);
    s->used += aligned;
    return s->data + s->used - aligned;
}

guarded guarded_create(const runner *r, size_t bytes)
{
    const size_t all = bytes + 2 * r->zone_bytes;
    guarded g = {NULL, bytes};
    if (all == 0)
        return g;
    unsigned char *p = take(r, all);
    if (!p)
        die(EXIT_CODE_FAILURE, "no device memory for %zu bytes", all);
    device_memset(r->dev, p, 0xff, all);
    g.data = p + r->zone_bytes;
    return g;
}

void guarded_free(const runner *r, guarded *g)
{
    unsigned char *p = g->data ? g->data - r->zone_bytes : NULL;
    if (p && r->zone_bytes > 0)
        r->slab->buffers--;
    if (p && !is_in_slab(r, p))
        device_free(r->dev, p);
    *g = (guarded){0};
}

static bool is_untouched(const unsigned char *zone, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (zone[i] != 0xff)
            return false;
    return true;
}

bool guarded_intact(const runner *r, const guarded *g)
{
    unsigned char zone[1024];
    const unsigned char *const sides[2] = {g->data - r->zone_bytes, g->data + g->bytes};
    for (int side = 0; side < 2 && r->zone_bytes > 0; side++) {
        device_download(r->dev, zone, sides[side], r->zone_bytes);
        if (!is_untouched(zone, r->zone_bytes))
            return false;
    }
    return true;
}

snapshot snapshot_take(const runner *r)
{
    snapshot s = {r, NULL};
    if (r->slab->used == 0 || r->zone_bytes == 0)
        return s;
    s.host = xmalloc(r->slab->used);
    device_download(r->dev, s.host, r->slab->data, r->slab->used);
    return s;
}

void snapshot_free(snapshot *s)
{
    free(s->host);
    s->host = NULL;
}

/* Where the buffer's copy lies; NULL: nowhere. */
static const unsigned char *copy_of(const snapshot *s, const guarded *g)
{
    return s->host && g->data && is_in_slab(s->r, g->data) ? s->host + (g->data - s->r->slab->data) : NULL;
}

bool snapshot_intact(const snapshot *s, const guarded *g)
{
    const unsigned char *copy = copy_of(s, g);
    const size_t zone = s->r->zone_bytes;
    return copy ? is_untouched(copy - zone, zone) && is_untouched(copy + g->bytes, zone) : guarded_intact(s->r, g);
}

void snapshot_read(const snapshot *s, const guarded *g, void *out)
{
    const unsigned char *copy = copy_of(s, g);
    if (copy)
        memcpy(out, copy, g->bytes);
    else
        device_download(s->r->dev, out, g->data, g->bytes);
}

tally *runner_tally(runner *r, const char *op, const char *dtype)
{
    for (int i = 0; i < r->n_tallies; i++)
        if (strcmp(r->tallies[i].op, op) == 0 && strcmp(r->tallies[i].dtype, dtype) == 0)
            return &r->tallies[i];
    r->tallies = xrealloc(r->tallies, sizeof *r->tallies * (unsigned long)(r->n_tallies + 1));
    tally *t = &r->tallies[r->n_tallies++];
    *t = (tally){0};
    snprintf(t->op, sizeof t->op, "%s", op);
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    return t;
}

bool runner_fail(const runner *r, const char *op, const char *dtype, const char *name, const char *fmt, ...)
{
    va_list args;
    printf("FAIL %s %s %s: ", op, dtype, name);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("; again: %s%s --op %s --dtype %s --case '%s'\n", r->program, r->extra_options, op, dtype, name);
    fflush(stdout);
    return false;
}
