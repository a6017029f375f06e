/* SPDX-License-Identifier: MIT */
/* RMSNorm, with or without a residual, and its gradients. With xhat = x rstd and g = dy weight, for each row
 * dx = rstd (g - xhat mean(g xhat)), and dweight sums dy xhat over the rows. Sums are in double. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train.h"
#include "kernels/shared/train_check.h"

#include <math.h>

/* Sum of the squares of row r of what is normalized, which is x, or x + residual as written to `sum`. */
static double row_squares(const sb_rmsnorm *p, int r)
{
    double squares = 0;
    for (int j = 0, n; j < p->d; j += n) {
        float x[CPU_BLOCK], residual[CPU_BLOCK];
        const size_t at = (size_t)r * p->d + j;
        n = cpu_block(j, p->d);
        cpu_read(p->dtype, x, p->x, at, n);
        if (p->residual) {
            cpu_read(p->dtype, residual, p->residual, at, n);
            for (int i = 0; i < n; i++)
                x[i] += residual[i];
            cpu_write(p->dtype, p->sum, at, x, n);
            cpu_read(p->dtype, x, p->sum, at, n);
        }
        for (int i = 0; i < n; i++)
            squares += (double)x[i] * x[i];
    }
    return squares;
}

void cpu_rmsnorm_output(const sb_rmsnorm *p, int r)
{
    for (int j = 0, n; j < p->d; j += n) {
        float x[CPU_BLOCK], weight[CPU_BLOCK];
        const size_t at = (size_t)r * p->d + j;
        n = cpu_block(j, p->d);
        cpu_read(p->dtype, x, p->residual ? p->sum : p->x, at, n);
        cpu_read(p->dtype_param, weight, p->weight, j, n);
        for (int i = 0; i < n; i++)
            x[i] = x[i] * p->rstd[r] * weight[i];
        cpu_write(p->dtype, p->y, at, x, n);
    }
}

sb_status cpu_rmsnorm_forward(sb_context *ctx, const sb_rmsnorm *p, void *stream)
{
    (void)ctx, (void)stream;
    SB_TRY(sb_rmsnorm_check(p, false));
    for (int r = 0; r < p->rows; r++) {
        p->rstd[r] = (float)(1 / sqrt(row_squares(p, r) / p->d + p->eps));
        if (p->y)
            cpu_rmsnorm_output(p, r);
    }
    return SB_OK;
}

static void weight_gradient(const sb_rmsnorm *p)
{
    for (int j = 0, n; j < p->d; j += n) {
        double sum[CPU_BLOCK] = {0};
        float x[CPU_BLOCK], dy[CPU_BLOCK];
        n = cpu_block(j, p->d);
        for (int r = 0; r < p->rows; r++) {
            cpu_read(p->dtype, x, p->x, (size_t)r * p->d + j, n);
            cpu_read(p->dtype, dy, p->dy, (size_t)r * p->d + j, n);
            for (int i = 0; i < n; i++)
                sum[i] += (double)dy[i] * (x[i] * p->rstd[r]);
        }
        if (p->accumulate)
            cpu_read(p->dtype_grad, dy, p->dweight, j, n);
        for (int i = 0; i < n; i++)
            x[i] = (float)(sum[i] + (p->accumulate ? dy[i] : 0));
        cpu_write(p->dtype_grad, p->dweight, j, x, n);
    }
}

/* xhat and g of n elements of row r from column j on. */
static void normalized(const sb_rmsnorm *p, int r, int j, int n, float *xhat, float *g)
{
    float weight[CPU_BLOCK];
    cpu_read(p->dtype, xhat, p->x, (size_t)r * p->d + j, n);
    cpu_read(p->dtype, g, p->dy, (size_t)r * p->d + j, n);
    cpu_read(p->dtype_param, weight, p->weight, j, n);
    for (int i = 0; i < n; i++) {
        xhat[i] *= p->rstd[r];
        g[i] *= weight[i];
    }
}

static void input_gradient(const sb_rmsnorm *p, int r)
{
    float xhat[CPU_BLOCK], g[CPU_BLOCK], passing[CPU_BLOCK] = {0};
    double dot = 0;
    for (int j = 0, n; j < p->d; j += n) {
        n = cpu_block(j, p->d);
        normalized(p, r, j, n, xhat, g);
        for (int i = 0; i < n; i++)
            dot += (double)g[i] * xhat[i];
    }
    const float mean = (float)(dot / p->d);
    for (int j = 0, n; j < p->d; j += n) {
        const size_t at = (size_t)r * p->d + j;
        n = cpu_block(j, p->d);
        normalized(p, r, j, n, xhat, g);
        if (p->d_residual)
            cpu_read(p->dtype, passing, p->d_residual, at, n);
        for (int i = 0; i < n; i++)
            g[i] = p->rstd[r] * (g[i] - xhat[i] * mean) + passing[i];
        cpu_write(p->dtype, p->dx, at, g, n);
    }
}

size_t cpu_rmsnorm_workspace(sb_context *ctx, const sb_rmsnorm *p)
{
    (void)ctx, (void)p;
    return 0;
}

sb_status cpu_rmsnorm_backward(sb_context *ctx, const sb_rmsnorm *p, void *stream)
{
    (void)ctx, (void)stream;
    sb_status s = sb_rmsnorm_check(p, true);
    if (s != SB_OK)
        return s;
    weight_gradient(p); /* first: dx may take dy's place */
    for (int r = 0; r < p->rows; r++)
        input_gradient(p, r);
    return SB_OK;
}
