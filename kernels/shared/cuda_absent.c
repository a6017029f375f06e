/* SPDX-License-Identifier: MIT */
/* Stands in for kernels/cuda/ in a build without CUDA. */
#include "kernels/shared/internal.h"
#include "kernels/shared/direct_adamw.h"
#include "kernels/shared/direct_rows.h"

const sb_kernels *sb_kernels_cuda(void)
{
    return NULL;
}

sb_status sb_cuda_direct_collective(const sb_direct_collective *p, void *stream)
{
    (void)stream;
    const sb_status s = sb_direct_check(p);
    return s ? s : sb_error(SB_UNSUPPORTED, "built without CUDA");
}

sb_status sb_cuda_direct_all_gather(const sb_direct_all_gather *p, void *stream)
{
    (void)stream;
    const sb_status s = sb_direct_gather_check(p);
    return s ? s : sb_error(SB_UNSUPPORTED, "built without CUDA");
}

sb_status sb_cuda_direct_gate(const sb_direct_gate *p, void *stream)
{
    (void)stream;
    const sb_status s = sb_direct_gate_check(p);
    return s ? s : sb_error(SB_UNSUPPORTED, "built without CUDA");
}

sb_status sb_cuda_direct_adamw(const sb_direct_adamw *p, void *stream)
{
    (void)stream;
    const sb_status s = sb_direct_adamw_check(p);
    return s ? s : sb_error(SB_UNSUPPORTED, "built without CUDA");
}

static sb_status absent(sb_status checked)
{
    return checked ? checked : sb_error(SB_UNSUPPORTED, "built without CUDA");
}

sb_status sb_cuda_direct_count(uint32_t *number, void *stream)
{
    (void)number, (void)stream;
    return absent(SB_OK);
}

sb_status sb_cuda_direct_await(const sb_direct_await *p, void *stream)
{
    (void)stream;
    return absent(sb_direct_await_check(p));
}

sb_status sb_cuda_direct_sum(const sb_direct_sum *p, void *stream)
{
    (void)stream;
    return absent(sb_direct_sum_check(p));
}
