/* SPDX-License-Identifier: MIT */
/* The norm over all gradients, unscaled, and whether one is not finite: found_nonfinite is set, never cleared, here. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train.h"
#include "kernels/shared/train_check.h"

#include <math.h>

size_t cpu_grad_stats_workspace(sb_context *ctx, const sb_grad_stats *p)
{
    (void)ctx, (void)p;
    return 0;
}

sb_status cpu_grad_stats(sb_context *ctx, const sb_grad_stats *p, void *stream)
{
    (void)ctx, (void)stream;
    SB_TRY(sb_grad_stats_check(p));
    double squares = 0;
    int n;
    for (size_t first = 0; first < p->n; first += n) {
        float g[CPU_BLOCK];
        n = cpu_block(first, p->n);
        cpu_read(p->dtype, g, p->grad, first, n);
        for (int i = 0; i < n; i++)
            squares += (double)g[i] * g[i];
    }
    /* Squares of fp32 cannot overflow a double, so the sum is finite exactly when every gradient is. */
    if (!isfinite(squares))
        p->state->found_nonfinite = 1;
    p->state->grad_norm = (float)(sqrt(squares) / p->state->loss_scale);
    return SB_OK;
}
