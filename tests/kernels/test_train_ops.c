/* SPDX-License-Identifier: MIT */
/* RMSNorm, RoPE and SwiGLU of the CPU against formulas in double: every dtype, odd sizes, outputs on inputs where the
 * header allows it, and each backward against finite differences of the forward formula. */
#include "tests/support/train_problem.h"

#include "common/core/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double slack = 1e-6; /* of fp32 arithmetic, relative to the root mean square of the result */

/* ---- RMSNorm ---- */

typedef enum norm_alias { DX_ALONE, DX_IS_DY, DX_IS_RESIDUAL, NORM_ALIASES } norm_alias;

static double mean_square(const array *x, int row, int d)
{
    double sum = 0;
    for (int i = 0; i < d; i++)
        sum += pow(array_get(x, (size_t)row * d + i), 2);
    return sum / d;
}

static void rmsnorm_forward(sb_rmsnorm p, bool with_residual)
{
    const size_t n = (size_t)p.rows * p.d;
    OWNED_ARRAY array *x = array_random(p.dtype, n, 1, 2), *residual = array_random(p.dtype, n, 2, 1);
    OWNED_ARRAY array *weight = array_random(p.dtype_param, p.d, 3, 1), *y = array_poison(p.dtype, n);
    OWNED_ARRAY array *sum = array_poison(p.dtype, n), *rstd = array_poison(SB_FP32, p.rows);
    OWNED double *want = xmalloc(n * sizeof *want), *want_rstd = xmalloc(p.rows * sizeof *want_rstd);
    p.x = x->data, p.weight = weight->data, p.y = y->data, p.rstd = rstd->data;
    if (with_residual)
        p.residual = residual->data, p.sum = sum->data;
    expect_ok(train_ops()->rmsnorm_forward(NULL, &p, NULL));

    for (size_t i = 0; i < n; i++)
        want[i] = with_residual ? array_get(x, i) + array_get(residual, i) : NAN;
    expect_rounded("x + residual", sum, want, 0);
    const array *normalized = with_residual ? sum : x;
    for (int r = 0; r < p.rows; r++) {
        want_rstd[r] = 1 / sqrt(mean_square(normalized, r, p.d) + p.eps);
        for (int i = 0; i < p.d; i++)
            want[(size_t)r * p.d + i] =
                array_get(normalized, (size_t)r * p.d + i) * want_rstd[r] * array_get(weight, i);
    }
    expect_rounded("rmsnorm", y, want, slack);
    expect_rounded("rstd", rstd, want_rstd, slack);
    OWNED_ARRAY array *alone = array_poison(SB_FP32, p.rows);
    p.y = NULL, p.rstd = alone->data;
    expect_ok(train_ops()->rmsnorm_forward(NULL, &p, NULL));
    assert_memory_equal(alone->data, rstd->data, (size_t)p.rows * sizeof(float));
}

static void rmsnorm_backward(sb_rmsnorm p, norm_alias alias, bool with_residual)
{
    const size_t n = (size_t)p.rows * p.d;
    OWNED_ARRAY array *x = array_random(p.dtype, n, 1, 2), *weight = array_random(p.dtype_param, p.d, 3, 1);
    OWNED_ARRAY array *dy = array_random(p.dtype, n, 4, 1), *residual = array_random(p.dtype, n, 5, 1);
    OWNED_ARRAY array *rstd = array_poison(SB_FP32, p.rows), *dx = array_poison(p.dtype, n);
    OWNED_ARRAY array *dweight = array_poison(p.dtype_grad, p.d);
    OWNED double *want = xmalloc(n * sizeof *want), *want_weight = xcalloc(p.d, sizeof *want_weight);
    for (int r = 0; r < p.rows; r++) {
        const double scale = 1 / sqrt(mean_square(x, r, p.d) + p.eps);
        double dot = 0;
        array_set(rstd, r, scale);
        for (size_t i = 0, at = (size_t)r * p.d; i < (size_t)p.d; i++, at++) {
            want_weight[i] += array_get(dy, at) * array_get(x, at) * scale;
            dot += array_get(dy, at) * array_get(weight, i) * array_get(x, at) * scale / p.d;
        }
        for (size_t i = 0, at = (size_t)r * p.d; i < (size_t)p.d; i++, at++)
            want[at] = scale * (array_get(dy, at) * array_get(weight, i) - array_get(x, at) * scale * dot) +
                       (with_residual ? array_get(residual, at) : 0);
    }
    array *out = alias == DX_IS_DY ? dy : alias == DX_IS_RESIDUAL ? residual : dx;
    p.x = x->data, p.weight = weight->data, p.rstd = rstd->data, p.dy = dy->data;
    p.d_residual = with_residual ? residual->data : NULL, p.dx = out->data, p.dweight = dweight->data;
    assert_int_equal(train_ops()->rmsnorm_workspace(NULL, &p), 0);
    expect_ok(train_ops()->rmsnorm_backward(NULL, &p, NULL));
    expect_rounded("dx", out, want, 2 * slack);
    expect_rounded("dweight", dweight, want_weight, 2 * slack);
    if (alias == DX_ALONE) {
        for (int i = 0; i < p.d; i++)
            want_weight[i] += array_get(dweight, i);
        p.accumulate = true;
        expect_ok(train_ops()->rmsnorm_backward(NULL, &p, NULL));
        expect_rounded("dweight added to", dweight, want_weight, 2 * slack);
    }
}

TEST(test_rmsnorm)
{
    static const int sizes[] = {2, 37, 256, 300, 513};
    int nth = 0;
    for (int t = SB_BF16; t <= SB_FP32; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int with_residual = 0; with_residual < 2; with_residual++)
                for (int alias = 0; alias < NORM_ALIASES; alias++, nth++) {
                    sb_rmsnorm p = {.dtype = t,
                                    .dtype_param = nth % 2 ? SB_FP32 : t,
                                    .dtype_grad = nth % 3 ? SB_FP32 : t,
                                    .rows = 1 + nth % 4,
                                    .d = sizes[s],
                                    .eps = nth % 5 ? 1e-5f : 0.1f};
                    rmsnorm_forward(p, with_residual);
                    rmsnorm_backward(p, alias, with_residual || alias == DX_IS_RESIDUAL);
                }
}

enum { ROWS = 3, D = 7 };
typedef struct norm_problem {
    double x[ROWS][D], weight[D], dy[ROWS][D];
} norm_problem;

static double norm_loss(const void *problem)
{
    const norm_problem *p = problem;
    double loss = 0;
    for (int r = 0; r < ROWS; r++) {
        double squares = 0;
        for (int i = 0; i < D; i++)
            squares += p->x[r][i] * p->x[r][i];
        for (int i = 0; i < D; i++)
            loss += p->dy[r][i] * p->x[r][i] / sqrt(squares / D + 1e-3) * p->weight[i];
    }
    return loss;
}

TEST(test_rmsnorm_differences)
{
    OWNED_ARRAY array *x = array_random(SB_FP32, ROWS * D, 1, 1), *weight = array_random(SB_FP32, D, 2, 1);
    OWNED_ARRAY array *dy = array_random(SB_FP32, ROWS * D, 3, 1), *y = array_poison(SB_FP32, ROWS * D);
    float rstd[ROWS], dx[ROWS * D], dweight[D];
    sb_rmsnorm p = {.dtype = SB_FP32,
                    .dtype_param = SB_FP32,
                    .dtype_grad = SB_FP32,
                    .rows = ROWS,
                    .d = D,
                    .eps = 1e-3f,
                    .x = x->data,
                    .weight = weight->data,
                    .y = y->data,
                    .rstd = rstd,
                    .dy = dy->data,
                    .dx = dx,
                    .dweight = dweight};
    expect_ok(train_ops()->rmsnorm_forward(NULL, &p, NULL));
    expect_ok(train_ops()->rmsnorm_backward(NULL, &p, NULL));
    norm_problem q;
    for (int i = 0; i < ROWS * D; i++) {
        q.x[i / D][i % D] = array_get(x, i);
        q.dy[i / D][i % D] = array_get(dy, i);
        q.weight[i % D] = array_get(weight, i % D);
    }
    for (int i = 0; i < ROWS * D; i++)
        expect_near("dx", dx[i], slope(norm_loss, &q, &q.x[i / D][i % D]), 2e-6);
    for (int i = 0; i < D; i++)
        expect_near("dweight", dweight[i], slope(norm_loss, &q, &q.weight[i]), 2e-6);
}

/* ---- RoPE ---- */

static float *rope_table(int seq, int head_dim)
{
    float *table = xmalloc((size_t)seq * head_dim * sizeof *table);
    for (int s = 0; s < seq; s++)
        for (int i = 0; i < head_dim; i += 2) {
            const double angle = s * pow(10000, -(double)i / head_dim);
            table[s * head_dim + i] = (float)cos(angle);
            table[s * head_dim + i + 1] = (float)sin(angle);
        }
    return table;
}

/* Rotates x, whose heads lie (B, S, H, D) with a gap behind each token or (B, H, S, D). */
static void one_rope(sb_rope p, bool heads_inside, int gap)
{
    OWNED float *table = rope_table(p.seq, p.head_dim);
    p.x.stride_s = heads_inside ? (int64_t)p.heads * p.head_dim + gap : p.head_dim;
    p.x.stride_h = heads_inside ? p.head_dim : (int64_t)p.seq * p.head_dim + gap;
    p.x.stride_b = heads_inside ? p.seq * p.x.stride_s : p.heads * p.x.stride_h;
    const size_t n = (size_t)p.batch * p.x.stride_b;
    OWNED_ARRAY array *x = array_random(p.dtype, n, 1, 1);
    OWNED double *want = xmalloc(n * sizeof *want);
    for (size_t i = 0; i < n; i++)
        want[i] = array_get(x, i);
    for (int b = 0; b < p.batch; b++)
        for (int h = 0; h < p.heads; h++)
            for (int s = 0; s < p.seq; s++)
                for (int i = 0; i < p.head_dim; i += 2) {
                    double *pair = want + b * p.x.stride_b + h * p.x.stride_h + s * p.x.stride_s + i;
                    const double c = table[s * p.head_dim + i], sine_in_table = table[s * p.head_dim + i + 1];
                    const double first = pair[0], second = pair[1], sine = p.inverse ? -sine_in_table : sine_in_table;
                    pair[0] = first * c - second * sine;
                    pair[1] = first * sine + second * c;
                }
    p.x.data = x->data, p.table = table;
    expect_ok(train_ops()->rope(NULL, &p, NULL));
    expect_rounded("rope", x, want, slack);
}

TEST(test_rope)
{
    static const int shapes[][4] = {{1, 1, 1, 2}, {2, 5, 3, 6}, {1, 17, 2, 64}, {2, 3, 1, 300}}; /* B, S, H, D */
    for (int t = SB_BF16; t <= SB_FP32; t++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int nth = 0; nth < 8; nth++)
                one_rope((sb_rope){.dtype = t,
                                   .batch = shapes[s][0],
                                   .seq = shapes[s][1],
                                   .heads = shapes[s][2],
                                   .head_dim = shapes[s][3],
                                   .inverse = nth & 1},
                         nth & 2, nth & 4 ? 10 : 0);
}

/* The gradient of a rotation is the rotation back: back(rotate(x)) is x, and <rotate(x), y> is <x, back(y)>. */
TEST(test_rope_inverse)
{
    enum { SEQ = 9, DIM = 8, N = SEQ * DIM };
    OWNED float *table = rope_table(SEQ, DIM);
    OWNED_ARRAY array *x = array_random(SB_FP32, N, 1, 1), *y = array_random(SB_FP32, N, 2, 1);
    OWNED_ARRAY array *turned = array_copy(x), *back = array_copy(y);
    sb_rope p = {.dtype = SB_FP32, .batch = 1, .seq = SEQ, .heads = 1, .head_dim = DIM, .table = table};
    p.x = (sb_tensor){turned->data, N, N, DIM};
    expect_ok(train_ops()->rope(NULL, &p, NULL));
    p.inverse = true, p.x.data = back->data;
    expect_ok(train_ops()->rope(NULL, &p, NULL));
    double left = 0, right = 0, moved = 0;
    for (int i = 0; i < N; i++) {
        left += array_get(turned, i) * array_get(y, i);
        right += array_get(x, i) * array_get(back, i);
        moved += fabs(array_get(turned, i) - array_get(x, i));
    }
    expect_near("<rotate(x), y>", left, right, 1e-5);
    assert_true(moved > 1);
    p.x.data = turned->data;
    expect_ok(train_ops()->rope(NULL, &p, NULL));
    for (int i = 0; i < N; i++)
        expect_near("back(rotate(x))", array_get(turned, i), array_get(x, i), 1e-6);
}

/* ---- SwiGLU ---- */

static double swiglu(double gate, double up)
{
    return gate / (1 + exp(-gate)) * up;
}

typedef struct swiglu_problem {
    double gate, up, dh;
} swiglu_problem;

static double swiglu_loss(const void *problem)
{
    const swiglu_problem *p = problem;
    return p->dh * swiglu(p->gate, p->up);
}

/* Backward: alias 1 writes d_gate_up over gate_up, 2 writes h over dh, 3 both; otherwise h is left out. */
static void one_swiglu(sb_dtype t, int rows, int f, int alias, double scale)
{
    const size_t n = (size_t)rows * f;
    OWNED_ARRAY array *gate_up = array_random(t, 2 * n, 1, scale), *dh = array_random(t, n, 2, 1);
    OWNED_ARRAY array *h = array_poison(t, n), *d_gate_up = array_poison(t, 2 * n);
    OWNED double *want = xmalloc(n * sizeof *want), *want_d = xmalloc(2 * n * sizeof *want_d);
    for (size_t i = 0; i < n; i++) {
        const size_t at = i / f * 2 * f + i % f;
        swiglu_problem q = {array_get(gate_up, at), array_get(gate_up, at + f), array_get(dh, i)};
        want[i] = swiglu(q.gate, q.up);
        want_d[at + f] = slope(swiglu_loss, &q, &q.up);
        want_d[at] = slope(swiglu_loss, &q, &q.gate);
    }
    sb_swiglu p = {.dtype = t, .rows = rows, .f = f, .gate_up = gate_up->data, .h = h->data};
    expect_ok(train_ops()->swiglu_forward(NULL, &p, NULL));
    expect_rounded("h", h, want, slack);
    array *out = alias & 1 ? gate_up : d_gate_up, *again = alias & 2 ? dh : NULL;
    p.dh = dh->data, p.d_gate_up = out->data, p.h = again ? again->data : NULL;
    expect_ok(train_ops()->swiglu_backward(NULL, &p, NULL));
    expect_rounded("d_gate_up", out, want_d, 2 * slack);
    if (again)
        expect_same("h again", again, h);
}

TEST(test_swiglu)
{
    static const int sizes[] = {1, 3, 255, 256, 300};
    for (int t = SB_BF16; t <= SB_FP32; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int alias = 0; alias < 4; alias++)
                one_swiglu(t, 1 + alias, sizes[s], alias, s == 2 ? 40 : 2); /* 40: sigmoids of 0 and 1 */
}
