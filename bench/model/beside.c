/* SPDX-License-Identifier: MIT */
/* Values of cases in bf16 by their keys without the precision; see beside.h. */
#include "bench/model/beside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

typedef struct kept {
    char **keys;
    double *values;
    size_t n;
} kept;

static void clear(void *data)
{
    kept *k = data;
    for (size_t i = 0; i < k->n; i++)
        free(k->keys[i]);
    free(k->keys);
    free(k->values);
}

static kept *kept_of(session *s)
{
    return session_cache(s, "cases in bf16", sizeof(kept), clear);
}

/* Caller frees. */
static char *key_without_precision(const bench_case *c)
{
    char *key = xstrdup(case_key(c)), *at = strstr(key, "precision=");
    if (at) {
        char *end = at + strcspn(at, " ");
        memmove(at, end, strlen(end) + 1);
    }
    return key;
}

void bf16_keep(session *s, const bench_case *c, double value)
{
    kept *k = kept_of(s);
    k->keys = xrealloc(k->keys, (k->n + 1) * sizeof *k->keys);
    k->values = xrealloc(k->values, (k->n + 1) * sizeof *k->values);
    k->keys[k->n] = key_without_precision(c);
    k->values[k->n++] = value;
}

double bf16_beside(session *s, const bench_case *c)
{
    const kept *k = kept_of(s);
    OWNED char *key = key_without_precision(c);
    double value = NAN;
    for (size_t i = 0; i < k->n; i++)
        if (strcmp(k->keys[i], key) == 0)
            value = k->values[i];
    return value;
}
