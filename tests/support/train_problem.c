/* SPDX-License-Identifier: MIT */
/* See train_problem.h. */
#include "tests/support/train_problem.h"

#include "common/core/error.h"
#include "common/core/numeric.h"
#include "common/core/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 64, GUARD = 0xa5, POISON = 0xff /* NaN in every dtype */ };

const char *const train_dtype_names[4] = {"bf16", "fp16", "tf32", "fp32"};

const sb_train_ops *train_ops(void)
{
    return sb_kernels_cpu()->train;
}

static size_t bytes_of(const array *a)
{
    return a->n * sb_dtype_bytes(a->dtype);
}

array *array_poison(sb_dtype t, size_t n)
{
    array *a = xmalloc(sizeof *a);
    *a = (array){.dtype = t, .n = n};
    a->memory = xmalloc(bytes_of(a) + 2 * GUARD_BYTES);
    a->data = a->memory + GUARD_BYTES;
    memset(a->memory, GUARD, bytes_of(a) + 2 * GUARD_BYTES);
    memset(a->data, POISON, bytes_of(a));
    return a;
}

array *array_random(sb_dtype t, size_t n, uint64_t seed, double scale)
{
    array *a = array_poison(t, n);
    OWNED float *draws = xmalloc(n * sizeof *draws);
    rng_normal(draws, n, seed, 0, 0, (float)scale);
    for (size_t i = 0; i < n; i++)
        array_set(a, i, draws[i]);
    return a;
}

array *array_copy(const array *a)
{
    array *copy = array_poison(a->dtype, a->n);
    memcpy(copy->data, a->data, bytes_of(a));
    return copy;
}

void array_free(array *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (a->memory[i] != GUARD || a->memory[GUARD_BYTES + bytes_of(a) + i] != GUARD)
            fail_msg("a byte beside an array of %zu %s was written", a->n, train_dtype_names[a->dtype]);
    free(a->memory);
    free(a);
}

double array_get(const array *a, size_t i)
{
    switch (a->dtype) {
    case SB_BF16: return bf16_to_float(((const uint16_t *)a->data)[i]);
    case SB_FP16: return fp16_to_float(((const uint16_t *)a->data)[i]);
    default: return ((const float *)a->data)[i];
    }
}

void array_set(array *a, size_t i, double value)
{
    switch (a->dtype) {
    case SB_BF16: ((uint16_t *)a->data)[i] = bf16_from_float((float)value); return;
    case SB_FP16: ((uint16_t *)a->data)[i] = fp16_from_float((float)value); return;
    default: ((float *)a->data)[i] = (float)value;
    }
}

static double half_unit(sb_dtype t, double value)
{
    switch (t) {
    case SB_BF16: return ldexp(fabs(value), -8);
    case SB_FP16: return fmax(ldexp(fabs(value), -11), 0x1p-25);
    default: return ldexp(fabs(value), -24);
    }
}

void expect_rounded(const char *what, const array *got, const double *want, double slack)
{
    double squares = 0;
    size_t finite = 0;
    for (size_t i = 0; i < got->n; i++)
        if (isfinite(want[i])) {
            squares += want[i] * want[i];
            finite++;
        }
    const double more = finite ? slack * sqrt(squares / finite) : 0;
    for (size_t i = 0; i < got->n; i++) {
        const double x = array_get(got, i);
        const bool same = isnan(want[i]) ? isnan(x) : x == want[i];
        if (!same && !(fabs(x - want[i]) <= half_unit(got->dtype, want[i]) * 1.001 + more))
            fail_msg("%s (%s): element %zu of %zu is %.9g, not %.9g, and may differ by %.3g", what,
                     train_dtype_names[got->dtype], i, got->n, x, want[i], half_unit(got->dtype, want[i]) + more);
    }
}

void expect_same(const char *what, const array *got, const array *want)
{
    assert_true(got->n == want->n && got->dtype == want->dtype);
    if (memcmp(got->data, want->data, bytes_of(got)) != 0)
        fail_msg("%s (%s): the bits differ", what, train_dtype_names[got->dtype]);
}

void expect_near(const char *what, double got, double want, double bound)
{
    if (!(fabs(got - want) <= bound * fmax(1, fabs(want))))
        fail_msg("%s: %.9g, not %.9g within %.3g", what, got, want, bound);
}

void expect_ok(sb_status s)
{
    if (s != SB_OK)
        fail_msg("%s: %s", sb_status_name(s), sb_last_message());
}

void expect_refused(sb_status s, sb_status want, const char *part)
{
    if (s != want || !strstr(sb_last_message(), part))
        fail_msg("expected %s because of \"%s\", got %s: %s", sb_status_name(want), part, sb_status_name(s),
                 s == SB_OK ? "" : sb_last_message());
}

double slope(loss_function loss, const void *problem, double *x)
{
    const double middle = *x, step = 1e-5;
    *x = middle + step;
    const double above = loss(problem);
    *x = middle - step;
    const double below = loss(problem);
    *x = middle;
    return (above - below) / (2 * step);
}
