/* SPDX-License-Identifier: MIT */
/* Values of cases in bf16 by their keys without the precision, and such keys; see beside.h. */
#include "bench/model/beside.h"

#include <math.h>
#include <string.h>

#include "common/core/cache.h"
#include "common/core/error.h"
#include "common/session/ceiling.h"

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

/* That of another program of the same ./run_all.sh, or of a run that --resume continues. */
static double stored(const session *s, const bench_case *c, const char *kind, const char *column)
{
    const char *const bf16[][2] = {{kind, "bf16"}, {"precision", NULL}, {"gather_dtype", NULL}, {NULL}};
    size_t r;
    OWNED_CSV csv *t = row_beside(s, c, case_variant(c), bf16, &r);
    return t ? csv_real(t, r, column) : NAN;
}

double of_bf16(session *s, const bench_case *c, const char *column, double value)
{
    /* A case of bf16 has no gathers of codes to compare with. */
    OWNED char *key = key_without(c, (const char *const[]){"precision", "product", "gather_dtype", NULL});
    const char *kind = case_has(c, "product") ? "product" : "precision";
    const bool is_16 = strcmp(case_text(c, kind), "bf16") == 0;
    double *of_16 = cache_find(s->kept, column, key);
    if (!of_16) {
        of_16 = cache_add(s->kept, column, key, sizeof *of_16, NULL);
        *of_16 = is_16 ? value : stored(s, c, kind, column);
    }
    if (is_16)
        *of_16 = value;
    return is_16 ? NAN : value / *of_16;
}
