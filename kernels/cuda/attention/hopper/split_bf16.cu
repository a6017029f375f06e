/* SPDX-License-Identifier: MIT */
#include "kernels/cuda/attention/hopper/split_bf16.cuh"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/hopper/launch.cuh"
#include "kernels/cuda/hopper/ptx.cuh"

namespace
{

struct split_params {
    split_bf16_tensor tensor[SPLIT_BF16_MAX_TENSORS];
    int batch, head_dim;
};

/* One thread four elements; blockIdx.y is the tensor. */
__global__ void split_kernel(const split_params p)
{
    hopper::let_next_kernel_start();
    const split_bf16_tensor &t = p.tensor[blockIdx.y];
    /* 32-bit division throughout: a tensor has less than 2^32 units (of 16 bytes) */
    const uint32_t quads = p.head_dim / 4, rows = (uint32_t)p.batch * t.heads * t.seq;
    __nv_bfloat16 *const hi = (__nv_bfloat16 *)t.to, *const lo = hi + (int64_t)rows * p.head_dim;
    hopper::wait_for_previous_kernel();
    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < (uint64_t)rows * quads; i += gridDim.x * blockDim.x) {
        const uint32_t row = (uint32_t)i / quads, d = ((uint32_t)i - row * quads) * 4;
        const uint32_t bh = row / t.seq, s = row - bh * t.seq, b = bh / t.heads, h = bh - b * t.heads;
        const float4 x = *(const float4 *)((const float *)t.from.data + b * t.from.stride_b + h * t.from.stride_h +
                                           s * t.from.stride_s + d);
        const __nv_bfloat162 h0 = __floats2bfloat162_rn(x.x, x.y), h1 = __floats2bfloat162_rn(x.z, x.w);
        const float2 f0 = __bfloat1622float2(h0), f1 = __bfloat1622float2(h1);
        const __nv_bfloat162 l0 = __floats2bfloat162_rn(x.x - f0.x, x.y - f0.y),
                             l1 = __floats2bfloat162_rn(x.z - f1.x, x.w - f1.y);
        *(uint2 *)(hi + 4 * i) = make_uint2(*(const uint32_t *)&h0, *(const uint32_t *)&h1);
        *(uint2 *)(lo + 4 * i) = make_uint2(*(const uint32_t *)&l0, *(const uint32_t *)&l1);
    }
}

} // namespace

sb_status split_bf16(const split_bf16_tensor *tensors, int count, int batch, int head_dim, void *stream)
{
    split_params p = {};
    int64_t most = 0;
    for (int i = 0; i < count; i++) {
        p.tensor[i] = tensors[i];
        const int64_t units = (int64_t)batch * tensors[i].heads * tensors[i].seq * (head_dim / 4);
        if (units > most)
            most = units;
    }
    p.batch = batch, p.head_dim = head_dim;
    const int64_t blocks = (most + 255) / 256;
    const unsigned grid_x = (unsigned)(blocks < 4096 ? blocks : 4096);
    return launch_hopper("split into parts", split_kernel, dim3(grid_x, count), 256, 0, 1, (cudaStream_t)stream, p);
}

size_t split_bf16_bytes(int batch, int heads, int seq, int head_dim)
{
    return ((size_t)4 * batch * heads * seq * head_dim + 255) / 256 * 256;
}

sb_tensor split_bf16_view(const split_bf16_tensor *t, int head_dim)
{
    sb_tensor v = {t->to, (int64_t)t->heads * t->seq * head_dim, (int64_t)t->seq * head_dim, head_dim};
    return v;
}
