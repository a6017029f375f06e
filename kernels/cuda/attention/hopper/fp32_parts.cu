/* SPDX-License-Identifier: MIT */
#include "kernels/cuda/attention/hopper/fp32_parts.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/hopper/launch.cuh"
#include "kernels/cuda/hopper/ptx.cuh"

namespace
{

struct split_params {
    fp32_parts_tensor tensor[FP32_PARTS_MAX_TENSORS];
    int batch, head_dim;
};

/* One thread four elements; blockIdx.y is the tensor. */
__global__ void split_kernel(const split_params p)
{
    let_next_kernel_start();
    const fp32_parts_tensor &t = p.tensor[blockIdx.y];
    /* 32-bit division throughout: a tensor has less than 2^32 units (of 16 bytes) */
    const uint32_t quads = p.head_dim / 4, rows = (uint32_t)p.batch * t.heads * t.seq;
    __nv_bfloat16 *const hi = (__nv_bfloat16 *)t.to, *const lo = hi + (int64_t)rows * p.head_dim;
    wait_for_previous_kernel();
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

constexpr int SCALED_THREADS = 256, SCALED_UNITS = FP32_PARTS_KEY_ROWS * 128 / 4 / SCALED_THREADS;

/* Bits of the larger magnitude; what is not finite does not count. */
__device__ __forceinline__ uint32_t larger(uint32_t top, float x)
{
    const uint32_t bits = __float_as_uint(x) & 0x7fffffffu;
    return bits < 0x7f800000u && bits > top ? bits : top;
}

__device__ __forceinline__ uint2 pack_halves(float4 x, float4 &rest)
{
    const __half2 a = __floats2half2_rn(x.x, x.y), b = __floats2half2_rn(x.z, x.w);
    const float2 fa = __half22float2(a), fb = __half22float2(b);
    rest = make_float4(x.x - fa.x, x.y - fa.y, x.z - fb.x, x.w - fb.y);
    return make_uint2(*(const uint32_t *)&a, *(const uint32_t *)&b);
}

/* A block a group of rows that share a scale; blockIdx.y is the tensor. */
__global__ void __launch_bounds__(SCALED_THREADS) split_kernel_scaled(const split_params p)
{
    __shared__ uint32_t warp_top[SCALED_THREADS / 32];
    let_next_kernel_start();
    const fp32_parts_tensor &t = p.tensor[blockIdx.y];
    const uint32_t quads = p.head_dim / 4, groups = (t.seq + t.rows - 1) / t.rows,
                   all = (uint32_t)p.batch * t.heads * groups;
    __half *const hi = (__half *)t.to, *const lo = hi + (int64_t)p.batch * t.heads * t.seq * p.head_dim;
    wait_for_previous_kernel();
    for (uint32_t n = blockIdx.x; n < all; n += gridDim.x) {
        const uint32_t bh = n / groups, first = (n - bh * groups) * t.rows, b = bh / t.heads, h = bh - b * t.heads;
        const uint32_t units = min(t.rows, t.seq - (int)first) * quads;
        const float *const from =
            (const float *)t.from.data + b * t.from.stride_b + h * t.from.stride_h + first * t.from.stride_s;
        float4 x[SCALED_UNITS];
        uint32_t top = 0;
#pragma unroll
        for (int u = 0; u < SCALED_UNITS; u++) {
            const uint32_t i = threadIdx.x + u * SCALED_THREADS, row = i / quads;
            x[u] = i < units ? *(const float4 *)(from + row * t.from.stride_s + (i - row * quads) * 4)
                             : make_float4(0, 0, 0, 0);
        }
#pragma unroll
        for (int u = 0; u < SCALED_UNITS; u++)
            top = larger(larger(larger(larger(top, x[u].x), x[u].y), x[u].z), x[u].w);
        top = __reduce_max_sync(~0u, top);
        __syncthreads(); /* the group before has been read */
        if (threadIdx.x % 32 == 0)
            warp_top[threadIdx.x / 32] = top;
        __syncthreads();
#pragma unroll
        for (int w = 0; w < SCALED_THREADS / 32; w++)
            top = max(top, warp_top[w]);
        const hopper::power_scale scale = hopper::scale_to_fp16(top);
        const int64_t at = ((int64_t)bh * t.seq + first) * p.head_dim;
#pragma unroll
        for (int u = 0; u < SCALED_UNITS; u++) {
            const uint32_t i = threadIdx.x + u * SCALED_THREADS;
            if (i >= units)
                continue;
            float4 rest, none;
            const float4 y = make_float4(x[u].x * scale.up, x[u].y * scale.up, x[u].z * scale.up, x[u].w * scale.up);
            *(uint2 *)(hi + at + 4 * (int64_t)i) = pack_halves(y, rest);
            *(uint2 *)(lo + at + 4 * (int64_t)i) = pack_halves(rest, none);
        }
        if (threadIdx.x == 0)
            t.inverse[n] = scale.down;
    }
}

size_t aligned(size_t n)
{
    return (n + 255) / 256 * 256;
}

fp32_parts_tensor place(int batch, int heads, int seq, int head_dim, int rows, const sb_tensor &from, void *to)
{
    return {from, to, (float *)((char *)to + aligned((size_t)4 * batch * heads * seq * head_dim)), heads, seq, rows};
}

} // namespace

sb_status fp32_parts(sb_dtype type, const fp32_parts_tensor *tensors, int count, int batch, int head_dim, void *stream)
{
    split_params p = {};
    int64_t most = 0;
    for (int i = 0; i < count; i++) {
        const fp32_parts_tensor &t = p.tensor[i] = tensors[i];
        const int64_t heads = (int64_t)batch * t.heads;
        const int64_t blocks =
            type == SB_FP16 ? heads * fp32_parts_groups(t.seq, t.rows) : (heads * t.seq * (head_dim / 4) + 255) / 256;
        if (blocks > most)
            most = blocks;
    }
    p.batch = batch, p.head_dim = head_dim;
    const unsigned grid_x = (unsigned)(most < 4096 ? most : 4096);
    return launch_hopper("split into parts", type == SB_FP16 ? split_kernel_scaled : split_kernel, dim3(grid_x, count),
                         SCALED_THREADS, 0, 1, (cudaStream_t)stream, p);
}

int fp32_parts_groups(int seq, int rows)
{
    return (seq + rows - 1) / rows;
}

size_t fp32_parts_bytes(int batch, int heads, int seq, int head_dim, int rows)
{
    return aligned((size_t)4 * batch * heads * seq * head_dim) +
           aligned((size_t)4 * batch * heads * fp32_parts_groups(seq, rows));
}

fp32_parts_tensor fp32_parts_queries(const sb_attention *a, const sb_tensor &from, void *to)
{
    return place(a->batch, a->heads, a->seq_q, a->head_dim, FP32_PARTS_QUERY_ROWS, from, to);
}

fp32_parts_tensor fp32_parts_keys(const sb_attention *a, const sb_tensor &from, void *to)
{
    return place(a->batch, a->heads_kv, a->seq_k, a->head_dim, FP32_PARTS_KEY_ROWS, from, to);
}

sb_tensor fp32_parts_view(const fp32_parts_tensor *t, int head_dim)
{
    sb_tensor v = {t->to, (int64_t)t->heads * t->seq * head_dim, (int64_t)t->seq * head_dim, head_dim};
    return v;
}
