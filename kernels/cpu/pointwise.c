/* SPDX-License-Identifier: MIT */
/* One operation on each element, in fp32, rounded once. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train.h"
#include "kernels/shared/train_check.h"

#include <math.h>

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

static float silu_gradient(float x)
{
    const float s = sigmoid(x);
    return s * (1 + x * (1 - s));
}

static float point(sb_point op, float a, float b, float scalar)
{
    switch (op) {
    case SB_POINT_COPY: return a;
    case SB_POINT_ADD: return a + b;
    case SB_POINT_SUB: return a - b;
    case SB_POINT_MUL: return a * b;
    case SB_POINT_DIV: return a / b;
    case SB_POINT_SCALE: return a * scalar;
    case SB_POINT_SHIFT: return a + scalar;
    case SB_POINT_LERP: return a + scalar * (b - a);
    case SB_POINT_SQRT: return sqrtf(a);
    case SB_POINT_RSQRT: return 1 / sqrtf(a);
    case SB_POINT_SIGMOID: return sigmoid(a);
    case SB_POINT_SILU: return a * sigmoid(a);
    case SB_POINT_SILU_GRAD: return b * silu_gradient(a);
    case SB_POINT_RELU: return a < 0 ? 0 : a;
    case SB_POINT_RELU_GRAD: return a > 0 ? b : 0;
    case SB_POINT_EXP: return expf(a);
    case SB_POINT_LOG: return logf(a);
    }
    return NAN;
}

/* The n elements of b that belong to row r from column j on. */
static void read_b(const sb_pointwise *p, int r, int j, int n, float *out)
{
    switch (p->spread_b) {
    case SB_SPREAD_FULL: cpu_read(p->dtype_b, out, p->b, (size_t)r * p->ldb + j, n); return;
    case SB_SPREAD_COLUMN: cpu_read(p->dtype_b, out, p->b, j, n); return;
    case SB_SPREAD_ROW:
    case SB_SPREAD_ONE:
        cpu_read(p->dtype_b, out, p->b, p->spread_b == SB_SPREAD_ROW ? r : 0, 1);
        for (int i = 1; i < n; i++)
            out[i] = out[0];
    }
}

sb_status cpu_pointwise(sb_context *ctx, const sb_pointwise *p, void *stream)
{
    (void)ctx, (void)stream;
    SB_TRY(sb_pointwise_check(p));
    for (int r = 0; r < p->rows; r++)
        for (int j = 0, n; j < p->columns; j += n) {
            float a[CPU_BLOCK], b[CPU_BLOCK] = {0};
            n = cpu_block(j, p->columns);
            cpu_read(p->dtype_a, a, p->a, (size_t)r * p->lda + j, n);
            if (sb_point_has_b(p->op))
                read_b(p, r, j, n, b);
            for (int i = 0; i < n; i++)
                a[i] = point(p->op, a[i], b[i], p->scalar);
            cpu_write(p->dtype_out, p->out, (size_t)r * p->ld_out + j, a, n);
        }
    return SB_OK;
}
