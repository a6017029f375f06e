/* SPDX-License-Identifier: MIT */
/* Stands in for kernels/cuda/ in a build without CUDA. */
#include "kernels/shared/internal.h"
#include "kernels/shared/direct_adamw.h"

const sb_kernels *sb_kernels_cuda(void)
{
    return NULL;
}

sb_status sb_cuda_direct_all_reduce(const sb_direct_all_reduce *p, void *stream)
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
