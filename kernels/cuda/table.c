/* SPDX-License-Identifier: MIT */
/* The CUDA backend's table of ops. */
#include "kernels/cuda/runtime/backend.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/attention/flash.h"
#include "kernels/cuda/train.h"
#include "kernels/cuda/attention/unfused.h"

enum { ATTENTION_OPS = 4 };

const sb_kernels *sb_kernels_cuda(void)
{
    static sb_attention_op attention[ATTENTION_OPS + 1]; /* C has no constant copies of the four structs */
    static const sb_kernels table = {
        .name = "cuda",
        .create = sb_cuda_create,
        .destroy = sb_cuda_destroy,
        .attention = attention,
        .reference_workspace = sb_cuda_reference_workspace,
        .reference = sb_cuda_reference,
        .gemm = sb_cuda_gemm,
        .fill_normal = sb_cuda_fill_normal,
        .fill_normal_from = sb_cuda_fill_normal_from,
        .copy = sb_cuda_copy,
        .nothing = sb_cuda_nothing,
        .train = &sb_cuda_train_ops,
    };
    attention[0] = sb_unfused_op;
    attention[1] = sb_fused_op;
    attention[2] = sb_flash_op;
    attention[3] = sb_flash_portable_op;
    return &table;
}
