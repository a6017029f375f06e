/* SPDX-License-Identifier: MIT */
/* The sum of parts in their order, in fp32; see kernels/shared/direct_rows.h. */
#include "kernels/cpu/cpu.h"
#include "kernels/shared/direct_rows.h"

sb_status sb_cpu_direct_sum(const sb_direct_sum *p)
{
    const sb_status s = sb_direct_sum_check(p);
    for (size_t at = 0, n; at < p->n && s == SB_OK; at += n) {
        float sum[CPU_BLOCK], one[CPU_BLOCK];
        n = (size_t)cpu_block(at, p->n);
        cpu_read(p->dtype, sum, p->parts[0], at, n);
        for (int r = 1; r < p->count; r++) {
            cpu_read(p->dtype, one, p->parts[r], at, n);
            for (size_t i = 0; i < n; i++)
                sum[i] += one[i];
        }
        if (p->residual) {
            uint32_t rounded[CPU_BLOCK];
            cpu_write(p->dtype, rounded, 0, sum, n);
            cpu_read(p->dtype, sum, rounded, 0, n);
            cpu_read(p->dtype, one, p->residual, at, n);
            for (size_t i = 0; i < n; i++)
                sum[i] += one[i];
        }
        cpu_write(p->dtype, p->out, at, sum, n);
    }
    return s;
}
