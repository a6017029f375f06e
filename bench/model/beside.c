/* SPDX-License-Identifier: MIT */
/* Values of cases in bf16 by their keys without the precision, and such keys; see beside.h. */
#include "bench/model/beside.h"

#include <math.h>
#include <string.h>

#include "common/core/cache.h"
#include "common/core/error.h"

char *key_without(const bench_case *c, const char *const *columns)
{
    char *key = xasprintf(" %s", case_key(c));
    for (; *columns; columns++) {
        OWNED char *name = xasprintf(" %s=", *columns);
        char *at = strstr(key, name), *end = at ? at + 1 + strcspn(at + 1, " ") : NULL;
        if (at)
            memmove(at, end, strlen(end) + 1);
    }
    return key;
}

double of_bf16(session *s, const bench_case *c, const char *what, double value)
{
    /* A case of bf16 has no gathers of codes to compare with. */
    OWNED char *key = key_without(c, (const char *const[]){"precision", "product", "gather_dtype", NULL});
    double *of_16 = cache_find(s->kept, what, key);
    if (strcmp(case_text(c, case_has(c, "product") ? "product" : "precision"), "bf16") != 0)
        return of_16 ? value / *of_16 : NAN;
    if (!of_16)
        of_16 = cache_add(s->kept, what, key, sizeof *of_16, NULL);
    *of_16 = value;
    return NAN;
}
