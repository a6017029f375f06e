/* SPDX-License-Identifier: MIT */
/* Rotary embedding in place: each pair is rotated by the angle whose cosine and sine the table has, or back. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train.h"
#include "kernels/shared/train_check.h"

/* One head of one token; `angles` is (head_dim/2, 2). A block holds whole pairs, since CPU_BLOCK is even. */
static void rotate_row(const sb_rope *p, void *row, const float *angles)
{
    for (int j = 0, n; j < p->head_dim; j += n) {
        float x[CPU_BLOCK];
        n = cpu_block(j, p->head_dim);
        cpu_read(p->dtype, x, row, j, n);
        for (int i = 0; i < n; i += 2) {
            const float cosine = angles[j + i], sine = p->inverse ? -angles[j + i + 1] : angles[j + i + 1];
            const float first = x[i], second = x[i + 1];
            x[i] = first * cosine - second * sine;
            x[i + 1] = first * sine + second * cosine;
        }
        cpu_write(p->dtype, row, j, x, n);
    }
}

sb_status cpu_rope(sb_context *ctx, const sb_rope *p, void *stream)
{
    (void)ctx, (void)stream;
    SB_TRY(sb_rope_check(p));
    for (int b = 0; b < p->batch; b++)
        for (int h = 0; h < p->heads; h++)
            for (int s = 0; s < p->seq; s++) {
                int64_t element = b * p->x.stride_b + h * p->x.stride_h + s * p->x.stride_s;
                rotate_row(p, (char *)p->x.data + element * sb_dtype_bytes(p->dtype),
                           p->table + (size_t)s * p->head_dim);
            }
    return SB_OK;
}
