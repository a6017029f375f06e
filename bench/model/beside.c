/* SPDX-License-Identifier: MIT */
/* Values of cases in bf16 by their keys without the precision; see beside.h. */
#include "bench/model/beside.h"

#include <math.h>
#include <string.h>

#include "common/core/cache.h"
#include "common/core/error.h"

/* A case of bf16 has no gathers of codes to compare with. Caller frees. */
static char *key_without_precision(const bench_case *c)
{
    static const char *const gone[] = {"precision=", "product=", "gather_dtype="};
    char *key = xstrdup(case_key(c));
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        char *at = strstr(key, gone[i]), *end = at ? at + strcspn(at, " ") : NULL;
        if (at)
            memmove(at, end, strlen(end) + 1);
    }
    return key;
}

double of_bf16(session *s, const bench_case *c, const char *what, double value)
{
    OWNED char *key = key_without_precision(c);
    double *of_16 = cache_find(s->kept, what, key);
    if (strcmp(case_text(c, case_has(c, "product") ? "product" : "precision"), "bf16") != 0)
        return of_16 ? value / *of_16 : NAN;
    if (!of_16)
        of_16 = cache_add(s->kept, what, key, sizeof *of_16, NULL);
    *of_16 = value;
    return NAN;
}
