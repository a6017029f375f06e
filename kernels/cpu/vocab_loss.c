/* SPDX-License-Identifier: MIT */
/* Cross-entropy over columns that several ranks hold: what a rank knows of a row, and the row's loss and gradient from what
 * all of them know. Exponentials in fp32, sums in double but for the three numbers that ranks exchange. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train.h"
#include "kernels/shared/train_check.h"

#include <math.h>

enum { NUMBERS = 3 }; /* maximum, sum, the target's logit */

sb_status cpu_vocab_loss_partial(sb_context *ctx, const sb_vocab_loss *p, void *stream)
{
    (void)ctx, (void)stream;
    const sb_status s = sb_vocab_loss_check(p, false);
    for (int r = 0; r < p->rows && s == SB_OK; r++) {
        const size_t row = (size_t)r * p->ld;
        const int target = p->targets[r] - p->first_id;
        float x[CPU_BLOCK], maximum = -INFINITY, at_target = 0;
        double sum = 0;
        for (int j = 0, n; j < p->columns; j += n) {
            n = cpu_block(j, p->columns);
            cpu_read(p->dtype, x, p->logits, row + j, n);
            for (int i = 0; i < n; i++)
                maximum = x[i] > maximum ? x[i] : maximum;
        }
        for (int j = 0, n; j < p->columns; j += n) {
            n = cpu_block(j, p->columns);
            cpu_read(p->dtype, x, p->logits, row + j, n);
            for (int i = 0; i < n; i++)
                sum += expf(x[i] - maximum);
        }
        if (target >= 0 && target < p->columns)
            cpu_read(p->dtype, &at_target, p->logits, row + target, 1);
        p->partial[r * NUMBERS] = maximum;
        p->partial[r * NUMBERS + 1] = (float)sum;
        p->partial[r * NUMBERS + 2] = at_target;
    }
    return s;
}

/* What all ranks know of a row, in their order. */
static void combine(const sb_vocab_loss *p, int r, float *maximum, double *sum, double *at_target)
{
    const float *of = p->partials + (size_t)r * NUMBERS;
    const size_t next = (size_t)p->rows * NUMBERS;
    *maximum = -INFINITY, *sum = *at_target = 0;
    for (int k = 0; k < p->ranks; k++)
        *maximum = of[k * next] > *maximum ? of[k * next] : *maximum;
    for (int k = 0; k < p->ranks; k++) {
        *sum += (double)of[k * next + 1] * expf(of[k * next] - *maximum);
        *at_target += of[k * next + 2];
    }
}

static void row_gradient(const sb_vocab_loss *p, int r, float maximum, double sum)
{
    const double factor = (p->scale ? *p->scale : 1.0) / (double)(p->total_rows ? p->total_rows : p->rows);
    const int target = p->targets[r] - p->first_id;
    const size_t row = (size_t)r * p->ld;
    float x[CPU_BLOCK];
    for (int j = 0, n; j < p->ld; j += n) {
        n = cpu_block(j, p->ld);
        cpu_read(p->dtype, x, p->logits, row + j, n);
        for (int i = 0; i < n; i++)
            x[i] = j + i < p->columns ? (float)((expf(x[i] - maximum) / sum - (j + i == target)) * factor) : 0;
        cpu_write(p->dtype, p->logits, row + j, x, n);
    }
}

sb_status cpu_vocab_loss_finish(sb_context *ctx, const sb_vocab_loss *p, void *stream)
{
    (void)ctx, (void)stream;
    SB_TRY(sb_vocab_loss_check(p, true));
    double total = 0;
    for (int r = 0; r < p->rows; r++) {
        float maximum;
        double sum, at_target;
        combine(p, r, &maximum, &sum, &at_target);
        const double loss = log(sum) + ((double)maximum - at_target);
        total += loss;
        p->row_loss[r] = (float)loss;
        if (p->backward)
            row_gradient(p, r, maximum, sum);
    }
    *p->loss = (float)(total / p->rows);
    return SB_OK;
}
