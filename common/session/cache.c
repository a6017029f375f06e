/* SPDX-License-Identifier: MIT */
/* What a part of a bench remembers from case to case; see session_cache in session.h. */
#include "common/session/session.h"

#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

struct session_cached {
    const char *name;
    void *data;
    void (*clear)(void *data);
    struct session_cached *next;
};

void *session_cache(session *s, const char *name, size_t bytes, void (*clear)(void *data))
{
    for (struct session_cached *c = s->cached; c; c = c->next)
        if (strcmp(c->name, name) == 0)
            return c->data;
    struct session_cached *c = xcalloc(1, sizeof *c);
    *c = (struct session_cached){name, xcalloc(1, bytes), clear, s->cached};
    s->cached = c;
    return c->data;
}

void session_cache_clear(session *s)
{
    while (s->cached) {
        struct session_cached *c = s->cached;
        s->cached = c->next;
        if (c->clear)
            c->clear(c->data);
        free(c->data);
        free(c);
    }
}
