/* SPDX-License-Identifier: MIT */
/* See documents.h. */
#include "bench/attention/problem.h"

#include <stdlib.h>

#include "common/core/error.h"
#include "common/core/rng.h"

enum { FIRST_STREAM = 32 }; /* of random numbers: behind those of the tensors and of the check */

static int compare(const void *x, const void *y)
{
    const int a = *(const int *)x, b = *(const int *)y;
    return (a > b) - (a < b);
}

int *documents_draw(int n, int total, bool random, uint64_t seed, uint32_t stream)
{
    int *begin = xcalloc((unsigned long)n + 1, sizeof *begin);
    for (int i = 1; i < n; i++)
        begin[i] = random ? (int)(rng_uniform(seed, FIRST_STREAM + stream, (uint64_t)i) * (total + 1.0))
                          : (int)((int64_t)total * i / n);
    begin[n] = total;
    qsort(begin + 1, (size_t)n - 1, sizeof *begin, compare);
    return begin;
}
