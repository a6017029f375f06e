/* SPDX-License-Identifier: MIT */
/* What the tests of the training ops share: guarded arrays of any dtype, and comparison with doubles. */
#pragma once

#include "kernels/kernels.h"
#include "tests/support/test.h"

/* n elements between two guards. */
typedef struct array {
    sb_dtype dtype;
    size_t n;
    void *data;
    unsigned char *memory;
} array;

array *array_poison(sb_dtype t, size_t n);                              /* NaN everywhere */
array *array_random(sb_dtype t, size_t n, uint64_t seed, double scale); /* N(0, scale^2) */
array *array_copy(const array *a);
void array_free(array *a); /* fails the test when a guard has changed; NULL is fine */
OWNER(array, array_free)
#define OWNED_ARRAY OWNED_BY(array)
double array_get(const array *a, size_t i);
void array_set(array *a, size_t i, double value); /* to the nearest of its dtype */

/* Fails the test unless every element is `want` to half a unit in the last place of its dtype, plus `slack` of the root
 * mean square of the finite part of want. Where want is not finite, the element must be the same; NaN stands for
 * poison. */
void expect_rounded(const char *what, const array *got, const double *want, double slack);
/* Fails the test unless both have the same bits. */
void expect_same(const char *what, const array *got, const array *want);
/* Fails the test unless |got - want| <= bound max(1, |want|). */
void expect_near(const char *what, double got, double want, double bound);
/* Fails the test unless s is SB_OK. */
void expect_ok(sb_status s);
/* Fails the test unless s is `want` and the message of this thread contains `part`. */
void expect_refused(sb_status s, sb_status want, const char *part);

extern const char *const train_dtype_names[4];
const sb_train_ops *train_ops(void); /* of the CPU; they need no context */

/* d loss / d x[i] by central differences, for a loss of doubles that reads x; x is as before afterwards. */
typedef double (*loss_function)(const void *problem);
double slope(loss_function loss, const void *problem, double *x);
