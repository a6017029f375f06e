/* SPDX-License-Identifier: MIT */
/* Cross-entropy of each row: log(sum(exp(x - max))) + max - x[target], and softmax minus one-hot in place of the
 * logits. Exponentials in fp32, sums in double. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train.h"
#include "kernels/shared/train_check.h"

#include <math.h>

static sb_status targets_check(const sb_cross_entropy *p)
{
    for (int r = 0; r < p->rows; r++)
        if (p->targets[r] < 0 || p->targets[r] >= p->vocab)
            return sb_error(SB_INVALID, "cross_entropy: target %d of row %d is not in [0, %d)", (int)p->targets[r], r,
                            p->vocab);
    return SB_OK;
}

static float row_maximum(const sb_cross_entropy *p, size_t row)
{
    float x[CPU_BLOCK], maximum = -INFINITY;
    for (int j = 0, n; j < p->vocab; j += n) {
        n = cpu_block(j, p->vocab);
        cpu_read(p->dtype, x, p->logits, row + j, n);
        for (int i = 0; i < n; i++)
            maximum = x[i] > maximum ? x[i] : maximum;
    }
    return maximum;
}

static double row_sum(const sb_cross_entropy *p, size_t row, float maximum)
{
    float x[CPU_BLOCK];
    double sum = 0;
    for (int j = 0, n; j < p->vocab; j += n) {
        n = cpu_block(j, p->vocab);
        cpu_read(p->dtype, x, p->logits, row + j, n);
        for (int i = 0; i < n; i++)
            sum += expf(x[i] - maximum);
    }
    return sum;
}

static void row_gradient(const sb_cross_entropy *p, size_t row, int target, float maximum, double sum)
{
    const double factor = (p->scale ? *p->scale : 1.0) / (double)(p->total_rows ? p->total_rows : p->rows);
    float x[CPU_BLOCK];
    for (int j = 0, n; j < p->vocab; j += n) {
        n = cpu_block(j, p->vocab);
        cpu_read(p->dtype, x, p->logits, row + j, n);
        for (int i = 0; i < n; i++)
            x[i] = (float)((expf(x[i] - maximum) / sum - (j + i == target)) * factor);
        cpu_write(p->dtype, p->logits, row + j, x, n);
    }
}

sb_status cpu_cross_entropy(sb_context *ctx, const sb_cross_entropy *p, void *stream)
{
    (void)ctx, (void)stream;
    SB_TRY(sb_cross_entropy_check(p));
    SB_TRY(targets_check(p));
    double total = 0;
    for (int r = 0; r < p->rows; r++) {
        const size_t row = (size_t)r * p->vocab;
        const float maximum = row_maximum(p, row);
        const double sum = row_sum(p, row, maximum);
        float x_target;
        cpu_read(p->dtype, &x_target, p->logits, row + p->targets[r], 1);
        const double loss = log(sum) + ((double)maximum - x_target);
        total += loss;
        p->row_loss[r] = (float)loss;
        if (p->backward)
            row_gradient(p, row, p->targets[r], maximum, sum);
    }
    *p->loss = (float)(total / p->rows);
    return SB_OK;
}
