/* SPDX-License-Identifier: MIT */
/* Joins a part of attention and the sum of other parts, row by row, in fp32. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train.h"
#include "kernels/shared/train_check.h"

#include <math.h>

/* The weight of a part of which lse is known; 0 where it saw no key. */
static float weight(float lse, float all)
{
    return lse == -INFINITY ? 0 : expf(lse - all);
}

static void merge_row(const sb_attention_merge *p, const void *o, float lse, float *o_sum, float *lse_sum)
{
    const float before = p->first ? -INFINITY : *lse_sum, most = fmaxf(before, lse);
    const float all = most == -INFINITY ? most : most + logf(expf(before - most) + expf(lse - most));
    const float keep = weight(before, all), add = weight(lse, all);
    for (int j = 0, n; j < p->columns; j += n) {
        float x[CPU_BLOCK];
        n = cpu_block(j, p->columns);
        cpu_read(p->dtype, x, o, j, n);
        for (int i = 0; i < n; i++)
            o_sum[j + i] = p->first ? x[i] : o_sum[j + i] * keep + x[i] * add;
    }
    *lse_sum = all;
}

sb_status cpu_attention_merge(sb_context *ctx, const sb_attention_merge *p, void *stream)
{
    (void)ctx, (void)stream;
    SB_TRY(sb_attention_merge_check(p));
    for (int b = 0; b < p->batch; b++)
        for (int h = 0; h < p->heads; h++)
            for (int s = 0; s < p->seq; s++) {
                const int64_t from = b * p->o.stride_b + h * p->o.stride_h + s * p->o.stride_s;
                const int64_t to = b * p->o_sum.stride_b + h * p->o_sum.stride_h + s * p->o_sum.stride_s;
                const size_t row = ((size_t)b * p->heads + h) * p->seq + s;
                merge_row(p, (const char *)p->o.data + from * sb_dtype_bytes(p->dtype), p->lse[row],
                          (float *)p->o_sum.data + to, p->lse_sum + row);
            }
    return SB_OK;
}
