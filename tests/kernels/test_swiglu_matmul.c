/* SPDX-License-Identifier: MIT */
/* The CPU's matmul with SwiGLU at its end against the ops that it stands for: over odd shapes, gaps between rows, with and
 * without what need not be stored; and what it refuses. */
#include "tests/support/train_problem.h"

#include "common/core/error.h"

#include <math.h>
#include <stdlib.h>

typedef struct shape {
    int rows, f, d, gap;
} shape;

/* A tile of the CPU is 128 x 128. */
static const shape shapes[] = {{1, 8, 8, 0}, {3, 40, 16, 8}, {129, 136, 72, 0}, {130, 264, 24, 24}, {7, 128, 520, 0}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static sb_swiglu_matmul problem_of(sb_dtype t, const shape *s)
{
    return (sb_swiglu_matmul){.dtype = t, .rows = s->rows, .f = s->f, .d = s->d, .lda = s->d + s->gap};
}

/* The products of rows of x with columns c of B, element l of which is b[l * ld_k + c * ld_c]. */
static double *product_of(const sb_swiglu_matmul *p, const array *x, const array *b, int columns, int ld_k, int ld_c)
{
    double *out = xmalloc((size_t)p->rows * (size_t)columns * sizeof *out);
    for (int i = 0; i < p->rows; i++)
        for (int c = 0; c < columns; c++) {
            double sum = 0;
            for (int l = 0; l < p->d; l++)
                sum += array_get(x, (size_t)i * p->lda + l) * array_get(b, (size_t)l * ld_k + (size_t)c * ld_c);
            out[(size_t)i * columns + c] = sum;
        }
    return out;
}

static array *rows_with_gaps(const sb_swiglu_matmul *p, uint64_t seed)
{
    array *x = array_random(p->dtype, (size_t)p->rows * p->lda, seed, 1);
    for (int i = 0; i < p->rows; i++)
        for (int j = p->d; j < p->lda; j++)
            array_set(x, (size_t)i * p->lda + j, NAN);
    return x;
}

static void one_forward(sb_dtype t, const shape *s)
{
    sb_swiglu_matmul p = problem_of(t, s);
    const size_t n = (size_t)p.rows * p.f;
    OWNED_ARRAY array *x = rows_with_gaps(&p, 1), *w13 = array_random(t, 2 * (size_t)p.f * p.d, 2, 2 / sqrt(p.d));
    OWNED_ARRAY array *gate_up = array_poison(t, 2 * n), *h = array_poison(t, n), *alone = array_poison(t, n),
                      *separate = array_poison(t, n);
    p.x = x->data, p.w13 = w13->data, p.gate_up = gate_up->data, p.h = h->data;
    expect_ok(train_ops()->swiglu_matmul_supported(NULL, &p));
    expect_ok(train_ops()->swiglu_matmul_forward(NULL, &p, NULL));
    OWNED double *want = product_of(&p, x, w13, 2 * p.f, 1, p.d);
    expect_rounded("gate_up", gate_up, want, 1e-6 + 4e-7 * sqrt(p.d));
    const sb_swiglu end = {.dtype = t, .rows = p.rows, .f = p.f, .gate_up = gate_up->data, .h = separate->data};
    expect_ok(train_ops()->swiglu_forward(NULL, &end, NULL));
    expect_same("h", h, separate);
    p.gate_up = NULL, p.h = alone->data;
    expect_ok(train_ops()->swiglu_matmul_forward(NULL, &p, NULL));
    expect_same("h alone", alone, h);
}

/* dh by the separate product may be rounded the other way where its sum was in another order: the gradients are compared
 * with those that the separate op makes of a dh from exact sums. */
static void one_backward(sb_dtype t, const shape *s)
{
    sb_swiglu_matmul p = problem_of(t, s);
    const size_t n = (size_t)p.rows * p.f;
    OWNED_ARRAY array *dy = rows_with_gaps(&p, 3), *w2 = array_random(t, (size_t)p.f * p.d, 4, 1 / sqrt(p.d));
    OWNED_ARRAY array *before = array_random(t, 2 * n, 5, 2), *got = array_copy(before), *again = array_copy(before),
                      *want = array_copy(before), *dh = array_poison(t, n), *h = array_poison(t, n),
                      *want_h = array_poison(t, n);
    p.dy = dy->data, p.w2 = w2->data, p.gate_up = got->data, p.h = h->data;
    expect_ok(train_ops()->swiglu_matmul_backward(NULL, &p, NULL));
    OWNED double *sums = product_of(&p, dy, w2, p.f, p.f, 1);
    for (size_t i = 0; i < n; i++)
        array_set(dh, i, sums[i]);
    const sb_swiglu end = {.dtype = t,
                           .rows = p.rows,
                           .f = p.f,
                           .gate_up = want->data,
                           .h = want_h->data,
                           .dh = dh->data,
                           .d_gate_up = want->data};
    expect_ok(train_ops()->swiglu_backward(NULL, &end, NULL));
    expect_same("h", h, want_h);
    OWNED double *exact = xmalloc(2 * n * sizeof *exact);
    for (size_t i = 0; i < 2 * n; i++)
        exact[i] = array_get(want, i);
    expect_rounded("d_gate_up", got, exact, t == SB_BF16 ? 0x1p-7 : 0x1p-10); /* a dh rounded the other way */
    p.gate_up = again->data, p.h = NULL;
    expect_ok(train_ops()->swiglu_matmul_backward(NULL, &p, NULL));
    expect_same("d_gate_up without h", again, got);
}

TEST(test_forward)
{
    for (sb_dtype t = SB_BF16; t <= SB_FP16; t++)
        for (int i = 0; i < SHAPES; i++)
            one_forward(t, &shapes[i]);
}

TEST(test_backward)
{
    for (sb_dtype t = SB_BF16; t <= SB_FP16; t++)
        for (int i = 0; i < SHAPES; i++)
            one_backward(t, &shapes[i]);
}

/* Starts from arguments that are accepted, with one of them made wrong. */
#define REFUSED(op, status, change, part)                                                                              \
    do {                                                                                                               \
        sb_swiglu_matmul p = valid;                                                                                    \
        p.change;                                                                                                      \
        expect_refused(train_ops()->op(NULL, &p, NULL), status, part);                                                 \
    } while (0)

TEST(test_refused)
{
    static uint16_t buffer[512];
    const sb_swiglu_matmul valid = {.dtype = SB_FP16,
                                    .rows = 2,
                                    .f = 8,
                                    .d = 8,
                                    .lda = 8,
                                    .x = buffer,
                                    .w13 = buffer,
                                    .dy = buffer,
                                    .w2 = buffer,
                                    .gate_up = buffer + 256,
                                    .h = buffer + 384};
    expect_ok(train_ops()->swiglu_matmul_forward(NULL, &valid, NULL));
    expect_ok(train_ops()->swiglu_matmul_backward(NULL, &valid, NULL));
    REFUSED(swiglu_matmul_forward, SB_INVALID, rows = 0, "at least 1");
    REFUSED(swiglu_matmul_forward, SB_INVALID, lda = 7, "lda 7");
    REFUSED(swiglu_matmul_forward, SB_UNSUPPORTED, dtype = SB_FP32, "dtype 3");
    REFUSED(swiglu_matmul_forward, SB_UNSUPPORTED, f = 12, "multiples of 8");
    REFUSED(swiglu_matmul_forward, SB_INVALID, x = NULL, "x is missing");
    REFUSED(swiglu_matmul_forward, SB_INVALID, w13 = NULL, "w13 is missing");
    REFUSED(swiglu_matmul_forward, SB_INVALID, h = NULL, "h is missing");
    REFUSED(swiglu_matmul_backward, SB_UNSUPPORTED, lda = 12, "multiples of 8");
    REFUSED(swiglu_matmul_backward, SB_INVALID, dy = NULL, "dy is missing");
    REFUSED(swiglu_matmul_backward, SB_INVALID, w2 = NULL, "w2 is missing");
    REFUSED(swiglu_matmul_backward, SB_INVALID, gate_up = NULL, "gate_up is missing");
}
