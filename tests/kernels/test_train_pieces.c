/* SPDX-License-Identifier: MIT */
/* The pieces of the CPU: every pointwise op with every spread of b, in place and between dtypes; sums and maxima along
 * rows and down columns. */
#include "tests/support/train_problem.h"

#include "common/core/error.h"

#include <math.h>
#include <stdlib.h>

static const double scalar = 0.3f;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double wanted(sb_point op, double a, double b)
{
    switch (op) {
    case SB_POINT_COPY: return a;
    case SB_POINT_ADD: return a + b;
    case SB_POINT_SUB: return a - b;
    case SB_POINT_MUL: return a * b;
    case SB_POINT_DIV: return a / b;
    case SB_POINT_SCALE: return a * scalar;
    case SB_POINT_SHIFT: return a + scalar;
    case SB_POINT_LERP: return (1 - scalar) * a + scalar * b;
    case SB_POINT_SQRT: return sqrt(a);
    case SB_POINT_RSQRT: return pow(a, -0.5);
    case SB_POINT_SIGMOID: return sigmoid(a);
    case SB_POINT_SILU: return a * sigmoid(a);
    case SB_POINT_SILU_GRAD: return b * (sigmoid(a) + a * sigmoid(a) * sigmoid(-a));
    case SB_POINT_RELU: return fmax(a, 0);
    case SB_POINT_RELU_GRAD: return a > 0 ? b : 0;
    case SB_POINT_EXP: return exp(a);
    case SB_POINT_LOG: return log(a);
    }
    return NAN;
}

static bool is_root_or_log(sb_point op)
{
    return op == SB_POINT_SQRT || op == SB_POINT_RSQRT || op == SB_POINT_LOG;
}

static bool has_two(sb_point op)
{
    return (op >= SB_POINT_ADD && op <= SB_POINT_DIV) || op == SB_POINT_LERP || op == SB_POINT_SILU_GRAD ||
           op == SB_POINT_RELU_GRAD;
}

static size_t spread_index(const sb_pointwise *p, int row, int column)
{
    switch (p->spread_b) {
    case SB_SPREAD_FULL: return (size_t)row * p->ldb + column;
    case SB_SPREAD_ROW: return row;
    case SB_SPREAD_COLUMN: return column;
    default: return 0;
    }
}

typedef enum place { OUT_ALONE, OUT_IS_A, OUT_IS_B } place;

static void one_pointwise(sb_pointwise p, place where, int gap)
{
    p.scalar = (float)scalar;
    p.lda = p.columns + gap, p.ldb = p.columns + (where == OUT_IS_B ? 2 : 3) * gap;
    p.ld_out = where == OUT_IS_A ? p.lda : where == OUT_IS_B ? p.ldb : p.columns + 4 * gap;
    array *a = array_random(p.dtype_a, (size_t)p.rows * p.lda, 1, 1);
    const size_t size_b = p.spread_b == SB_SPREAD_FULL ? p.rows * p.ldb : p.rows + p.columns;
    array *b = array_random(p.dtype_b, size_b, 2, 1);
    if (is_root_or_log(p.op))
        for (size_t i = 0; i < a->n; i++)
            array_set(a, i, fabs(array_get(a, i)) + 0.1);
    if (p.op == SB_POINT_DIV)
        for (size_t i = 0; i < b->n; i++)
            array_set(b, i, copysign(fabs(array_get(b, i)) + 0.1, array_get(b, i)));
    array *out = where == OUT_IS_A ? a : where == OUT_IS_B ? b : array_poison(p.dtype_out, (size_t)p.rows * p.ld_out);
    OWNED double *want = xmalloc(out->n * sizeof *want);
    for (size_t i = 0; i < out->n; i++)
        want[i] = array_get(out, i);
    for (int r = 0; r < p.rows; r++)
        for (int c = 0; c < p.columns; c++)
            want[(size_t)r * p.ld_out + c] =
                wanted(p.op, array_get(a, (size_t)r * p.lda + c), array_get(b, spread_index(&p, r, c)));
    p.a = a->data, p.b = has_two(p.op) ? b->data : NULL, p.out = out->data;
    expect_ok(train_ops()->pointwise(NULL, &p, NULL));
    expect_rounded("pointwise", out, want, 1e-6);
    array_free(a);
    array_free(b);
    if (where == OUT_ALONE)
        array_free(out);
}

TEST(test_pointwise)
{
    static const int shapes[][2] = {{1, 1}, {3, 7}, {2, 256}, {5, 301}};
    int nth = 0;
    for (int op = SB_POINT_COPY; op <= SB_POINT_LOG; op++)
        for (int spread = SB_SPREAD_FULL; spread <= SB_SPREAD_ONE; spread++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                for (int t = SB_BF16; t <= SB_FP32; t++, nth++) {
                    sb_pointwise p = {.op = op,
                                      .dtype_a = t,
                                      .dtype_b = nth % 4,
                                      .dtype_out = nth / 4 % 4,
                                      .rows = shapes[s][0],
                                      .columns = shapes[s][1],
                                      .spread_b = spread};
                    one_pointwise(p, OUT_ALONE, nth % 3);
                    p.dtype_b = p.dtype_out = t;
                    one_pointwise(p, OUT_IS_A, nth % 3);
                    if (has_two(op) && spread == SB_SPREAD_FULL)
                        one_pointwise(p, OUT_IS_B, nth % 3);
                }
}

/* Gates so large that sigmoids are exactly 0 or 1. */
TEST(test_extremes)
{
    float a[] = {-1000, -90, 0, 90, 1000}, b[] = {1, 1, 1, 1, 1}, out[5];
    static const struct {
        sb_point op;
        double want[5];
    } table[] = {
        {SB_POINT_SIGMOID, {0, 0, 0.5, 1, 1}},
        {SB_POINT_SILU, {0, 0, 0, 90, 1000}},
        {SB_POINT_SILU_GRAD, {0, 0, 0.5, 1, 1}},
        {SB_POINT_RELU_GRAD, {0, 0, 0, 1, 1}},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        sb_pointwise p = {.op = table[i].op,
                          .dtype_a = SB_FP32,
                          .dtype_b = SB_FP32,
                          .dtype_out = SB_FP32,
                          .rows = 1,
                          .columns = 5,
                          .lda = 5,
                          .ldb = 5,
                          .ld_out = 5,
                          .a = a,
                          .b = b,
                          .out = out};
        expect_ok(train_ops()->pointwise(NULL, &p, NULL));
        for (int j = 0; j < 5; j++)
            expect_near("an extreme", out[j], table[i].want[j], 1e-30);
    }
}

static void one_reduce(sb_reduce p, double shift)
{
    const int n = p.over_rows ? p.columns : p.rows, length = p.over_rows ? p.rows : p.columns;
    OWNED_ARRAY array *x = array_random(p.dtype, (size_t)p.rows * p.ld, 1, 1), *out = array_poison(p.dtype_out, n);
    OWNED double *want = xmalloc(n * sizeof *want);
    for (size_t i = 0; i < x->n; i++)
        array_set(x, i, array_get(x, i) + shift);
    for (int i = 0; i < n; i++) {
        want[i] = p.maximum ? -INFINITY : 0;
        for (int j = 0; j < length; j++) {
            const double value = array_get(x, p.over_rows ? (size_t)j * p.ld + i : (size_t)i * p.ld + j);
            want[i] = p.maximum ? fmax(want[i], value) : want[i] + value;
        }
        want[i] *= p.scale;
    }
    p.x = x->data, p.out = out->data;
    assert_int_equal(train_ops()->reduce_workspace(NULL, &p), 0);
    expect_ok(train_ops()->reduce(NULL, &p, NULL));
    expect_rounded(p.maximum ? "maximum" : "sum", out, want, 1e-7);
}

TEST(test_reduce)
{
    static const int shapes[][2] = {{1, 1}, {3, 300}, {300, 3}, {33, 257}, {1, 700}};
    int nth = 0;
    for (int t = SB_BF16; t <= SB_FP32; t++)
        for (int t_out = SB_BF16; t_out <= SB_FP32; t_out++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                for (int kind = 0; kind < 4; kind++, nth++) {
                    sb_reduce p = {.dtype = t,
                                   .dtype_out = t_out,
                                   .rows = shapes[s][0],
                                   .columns = shapes[s][1],
                                   .ld = shapes[s][1] + nth % 4,
                                   .over_rows = kind & 1,
                                   .maximum = kind & 2,
                                   .scale = nth % 3 ? 1 : 0.25f};
                    one_reduce(p, nth % 5 ? 0 : -20); /* all negative: a maximum may not start from 0 */
                }
}
