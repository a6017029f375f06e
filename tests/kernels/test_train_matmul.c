/* SPDX-License-Identifier: MIT */
/* The CPU's matmul against double sums: every layout, dtype and output dtype over odd shapes with gaps between rows,
 * with and without an addend; and its tuning. */
#include "tests/support/train_problem.h"

#include "common/core/error.h"
#include "common/core/numeric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum addend { ADD_NOTHING, ADD_C, ADD_D } addend;

/* An operand as doubles without gaps and not transposed, rounded as the products of its dtype are. */
static double *operand(sb_dtype t, const array *x, bool transposed, int rows, int columns, int ld)
{
    double *out = xmalloc((size_t)rows * columns * sizeof *out);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            const double value = array_get(x, transposed ? (size_t)j * ld + i : (size_t)i * ld + j);
            out[(size_t)i * columns + j] = t == SB_TF32 ? tf32_round((float)value) : value;
        }
    return out;
}

/* What d must hold, NaN (as it was poisoned) in the gaps between its rows. */
static double *product(const sb_matmul *p, const array *a, const array *b, const array *c)
{
    OWNED double *left = operand(p->dtype, a, p->transpose_a, p->m, p->k, p->lda);
    OWNED double *right = operand(p->dtype, b, !p->transpose_b, p->n, p->k, p->ldb); /* columns of B as rows */
    double *want = xmalloc((size_t)p->m * p->ldd * sizeof *want);
    for (int i = 0; i < p->m; i++)
        for (int j = 0; j < p->ldd; j++) {
            double sum = c && j < p->n ? array_get(c, (size_t)i * p->ldc + j) : 0;
            for (int l = 0; l < p->k && j < p->n; l++)
                sum += left[(size_t)i * p->k + l] * right[(size_t)j * p->k + l];
            want[(size_t)i * p->ldd + j] = j < p->n ? sum : NAN;
        }
    return want;
}

static array *with_gaps(array *x, int rows, int columns, int ld)
{
    for (int i = 0; i < rows; i++)
        for (int j = columns; j < ld; j++)
            array_set(x, (size_t)i * ld + j, NAN);
    return x;
}

static void one_matmul(sb_matmul p, addend add, int gap)
{
    const int rows_a = p.transpose_a ? p.k : p.m, rows_b = p.transpose_b ? p.n : p.k;
    const int columns_a = p.transpose_a ? p.m : p.k, columns_b = p.transpose_b ? p.k : p.n;
    p.lda = columns_a + gap, p.ldb = columns_b + 2 * gap, p.ldd = p.n + gap;
    p.ldc = add == ADD_C ? p.n + 3 * gap : p.ldd;
    OWNED_ARRAY array *a = with_gaps(array_random(p.dtype, (size_t)rows_a * p.lda, 1, 1), rows_a, columns_a, p.lda);
    OWNED_ARRAY array *b = with_gaps(array_random(p.dtype, (size_t)rows_b * p.ldb, 2, 1), rows_b, columns_b, p.ldb);
    OWNED_ARRAY array *c = with_gaps(array_random(p.dtype_out, (size_t)p.m * p.ldc, 3, 2), p.m, p.n, p.ldc);
    OWNED_ARRAY array *d = add == ADD_D ? array_copy(c) : array_poison(p.dtype_out, (size_t)p.m * p.ldd);
    p.a = a->data, p.b = b->data, p.d = d->data;
    p.c = add == ADD_NOTHING ? NULL : add == ADD_C ? c->data : d->data;
    expect_ok(train_ops()->matmul(NULL, &p, NULL));
    OWNED double *want = product(&p, a, b, add == ADD_NOTHING ? NULL : c);
    expect_rounded("matmul", d, want, 1e-6 + 4e-7 * sqrt(p.k)); /* fp32 sums wander with the root of their length */
}

TEST(test_matmul)
{
    static const int shapes[][3] = {{1, 1, 1},    {3, 5, 7},   {17, 130, 33}, {128, 128, 256},
                                    {129, 70, 9}, {2, 3, 700}, {1, 129, 257}, {140, 1, 300}};
    int nth = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++)
            for (int layout = 0; layout < 4; layout++)
                for (int add = ADD_NOTHING; add <= ADD_D; add++, nth++) {
                    sb_matmul p = {.dtype = dtype,
                                   .dtype_out = nth % 2 ? SB_FP32 : dtype,
                                   .transpose_a = layout & 1,
                                   .transpose_b = layout & 2,
                                   .m = shapes[s][0],
                                   .n = shapes[s][1],
                                   .k = shapes[s][2],
                                   .split = dtype == SB_FP32 ? (sb_fp32_products)(nth % 3) : SB_FMA};
                    one_matmul(p, add, nth % 5);
                }
}

/* Tuning runs the product, names the one algorithm, and its choice is accepted again. */
TEST(test_tune)
{
    for (int t = SB_BF16; t <= SB_FP32; t++) {
        OWNED_ARRAY array *a = array_random(t, 33 * 65, 1, 1), *b = array_random(t, 65 * 20, 2, 1);
        OWNED_ARRAY array *d = array_poison(t, 33 * 20), *again = array_poison(t, 33 * 20);
        sb_matmul p = {.dtype = t,
                       .dtype_out = t,
                       .m = 33,
                       .n = 20,
                       .k = 65,
                       .lda = 65,
                       .ldb = 20,
                       .ldd = 20,
                       .a = a->data,
                       .b = b->data,
                       .d = d->data};
        sb_matmul_choice choice;
        memset(&choice, 0xff, sizeof choice);
        assert_int_equal(train_ops()->matmul_workspace(NULL, &p), 0);
        expect_ok(train_ops()->matmul_tune(NULL, &p, &choice, NULL, 0, NULL));
        assert_true(choice.ms >= 0 && choice.first_ms == choice.ms && choice.tried == 1);
        assert_true(strcmp(choice.name, "cblas") == 0 || strcmp(choice.name, "loops") == 0);
        expect_ok(train_ops()->matmul_choose(NULL, &p, &choice));
        p.d = again->data;
        expect_ok(train_ops()->matmul(NULL, &p, NULL));
        expect_same("a second matmul", again, d);
    }
}
