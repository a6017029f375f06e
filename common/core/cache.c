/* SPDX-License-Identifier: MIT */
/* Values by kind and key; see cache.h. */
#include "common/core/cache.h"

#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

typedef struct entry {
    struct entry *next;
    char *kind, *key;
    void *value;
    void (*destroy)(void *value);
} entry;

struct cache {
    entry *first;
};

cache *cache_create(void)
{
    return xcalloc(1, sizeof(cache));
}

void *cache_find(const cache *c, const char *kind, const char *key)
{
    for (const entry *e = c->first; e; e = e->next)
        if (strcmp(e->kind, kind) == 0 && strcmp(e->key, key) == 0)
            return e->value;
    return NULL;
}

void *cache_add(cache *c, const char *kind, const char *key, size_t bytes, void (*destroy)(void *value))
{
    entry *e = xmalloc(sizeof *e);
    *e = (entry){c->first, xstrdup(kind), xstrdup(key), xcalloc(1, bytes), destroy};
    c->first = e;
    return e->value;
}

/* NULL: of any kind. */
static void drop(cache *c, const char *kind)
{
    for (entry **at = &c->first; *at;) {
        entry *e = *at;
        if (kind && strcmp(e->kind, kind) != 0) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        if (e->destroy)
            e->destroy(e->value);
        free(e->value);
        free(e->kind);
        free(e->key);
        free(e);
    }
}

void cache_drop(cache *c, const char *kind)
{
    drop(c, kind);
}

void cache_free(cache *c)
{
    if (c)
        drop(c, NULL);
    free(c);
}
