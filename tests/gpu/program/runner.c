/* SPDX-License-Identifier: MIT */
/* Guarded buffers and the tally. */
#include "tests/gpu/program/runner.h"

#include "common/core/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

guarded guarded_create(const runner *r, size_t bytes)
{
    const size_t all = bytes + 2 * r->zone_bytes;
    guarded g = {NULL, bytes};
    if (all == 0)
        return g;
    unsigned char *p = device_malloc(r->dev, all);
    if (!p)
        die(EXIT_CODE_FAILURE, "no device memory for %zu bytes", all);
    device_memset(r->dev, p, 0xff, all);
    device_sync(r->dev);
    g.data = p + r->zone_bytes;
    return g;
}

void guarded_free(const runner *r, guarded *g)
{
    if (g->data)
        device_free(r->dev, g->data - r->zone_bytes);
    *g = (guarded){0};
}

bool guarded_intact(const runner *r, const guarded *g)
{
    unsigned char zone[1024];
    const unsigned char *const sides[2] = {g->data - r->zone_bytes, g->data + g->bytes};
    if (r->zone_bytes == 0)
        return true;
    for (int side = 0; side < 2; side++) {
        device_download(r->dev, zone, sides[side], r->zone_bytes);
        for (size_t i = 0; i < r->zone_bytes; i++)
            if (zone[i] != 0xff)
                return false;
    }
    return true;
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
