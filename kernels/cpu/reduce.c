/* SPDX-License-Identifier: MIT */
/* Sums, or largest elements, along rows or down columns; in double. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train.h"
#include "kernels/shared/train_check.h"

#include <math.h>

static double combine(const sb_reduce *p, double so_far, float x)
{
    if (!p->maximum)
        return so_far + x;
    return x > so_far || isnan(x) ? x : so_far;
}

static void along_rows(const sb_reduce *p, double start)
{
    for (int r = 0; r < p->rows; r++) {
        double result = start;
        float x[CPU_BLOCK];
        for (int j = 0, n; j < p->columns; j += n) {
            n = cpu_block(j, p->columns);
            cpu_read(p->dtype, x, p->x, (size_t)r * p->ld + j, n);
            for (int i = 0; i < n; i++)
                result = combine(p, result, x[i]);
        }
        x[0] = (float)(result * p->scale);
        cpu_write(p->dtype_out, p->out, r, x, 1);
    }
}

static void down_columns(const sb_reduce *p, double start)
{
    for (int j = 0, n; j < p->columns; j += n) {
        double result[CPU_BLOCK];
        float x[CPU_BLOCK];
        n = cpu_block(j, p->columns);
        for (int i = 0; i < n; i++)
            result[i] = start;
        for (int r = 0; r < p->rows; r++) {
            cpu_read(p->dtype, x, p->x, (size_t)r * p->ld + j, n);
            for (int i = 0; i < n; i++)
                result[i] = combine(p, result[i], x[i]);
        }
        for (int i = 0; i < n; i++)
            x[i] = (float)(result[i] * p->scale);
        cpu_write(p->dtype_out, p->out, j, x, n);
    }
}

size_t cpu_reduce_workspace(sb_context *ctx, const sb_reduce *p)
{
    (void)ctx, (void)p;
    return 0;
}

sb_status cpu_reduce(sb_context *ctx, const sb_reduce *p, void *stream)
{
    (void)ctx, (void)stream;
    SB_TRY(sb_reduce_check(p));
    const double start = p->maximum ? -INFINITY : 0;
    if (p->over_rows)
        down_columns(p, start);
    else
        along_rows(p, start);
    return SB_OK;
}
