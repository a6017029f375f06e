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

/* A case of bf16 has no gathers of codes to compare with. Caller frees. */
static char *key_without_precision(const bench_case *c)
{
    static const char *const gone[] = {"precision=", "gather_dtype="};
    char *key = xstrdup(case_key(c));
    for (int i = 0; i < 2; i++) {
        char *at = strstr(key, gone[i]);
        if (at)
            memmove(at, at + strcspn(at, " "), strlen(at + strcspn(at, " ")) + 1);
    }
    return key;
}

double of_bf16(session *s, const bench_case *c, const char *what, double value)
{
    kept *k = session_cache(s, what, sizeof(kept), clear);
    OWNED char *key = key_without_precision(c);
    double found = NAN;
    if (strcmp(case_text(c, "precision"), "bf16") == 0) {
        k->keys = xrealloc(k->keys, (k->n + 1) * sizeof *k->keys);
        k->values = xrealloc(k->values, (k->n + 1) * sizeof *k->values);
        k->keys[k->n] = xstrdup(key);
        k->values[k->n++] = value;
        return NAN;
    }
    for (size_t i = 0; i < k->n; i++)
        if (strcmp(k->keys[i], key) == 0)
            found = k->values[i];
    return value / found;
}
