/* SPDX-License-Identifier: MIT */
/* The fp32 matmul for Hopper: from floats in memory to scaled pairs of fp16 in shared memory. */
#pragma once

#include <cuda_fp16.h>

#include "kernels/cuda/matmul/hopper/matmul_fp32_layout.cuh"

namespace matmul_fp32
{

__device__ __forceinline__ float4 load4(const void *p)
{
    float4 v;
    asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p));
    return v;
}

/* A warp's group from (outer, k_first) on. What is outside is read from the nearest place inside: rows and columns
 * that D does not have need no zeros, and clear_beyond sees to k. */
template <bool ROWS>
__device__ __forceinline__ void load_group(float4 (&v)[QUADS], const operand &o, int k, int outer, int k_first,
                                           int lane)
{
    const float *const p = o.x + (ROWS ? min(outer + quad_outer<ROWS>(lane, 0), o.outer - 4)
                                       : min(k_first + quad_k<ROWS>(lane, 0), k - 4));
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        const int row =
            ROWS ? min(k_first + quad_k<ROWS>(lane, i), k - 1) : min(outer + quad_outer<ROWS>(lane, i), o.outer - 1);
        v[i] = load4((const char *)p + (uint64_t)(unsigned)row * o.ld_bytes);
    }
}

/* Zeros for what is not among the first `left` of k. */
template <bool ROWS>
__device__ __forceinline__ void clear_beyond(float4 (&v)[QUADS], int left, int lane)
{
#pragma unroll
    for (int i = 0; i < QUADS; i++)
        if (quad_k<ROWS>(lane, i) >= left)
            v[i] = make_float4(0, 0, 0, 0);
}

struct scaling {
    float factor, inverse;
};

__device__ __forceinline__ float finite_magnitude(float x)
{
    return __float_as_uint(fabsf(x)) < INFINITY_BITS ? fabsf(x) : 0.0f;
}

/* The scale of a warp's group. fmaxf passes over NaNs; infinities must not count either. */
__device__ __forceinline__ scaling group_scaling(const float4 (&v)[QUADS])
{
    float most = 0;
#pragma unroll
    for (int i = 0; i < QUADS; i++)
        most = fmaxf(fmaxf(fmaxf(most, fabsf(v[i].x)), fabsf(v[i].y)), fmaxf(fabsf(v[i].z), fabsf(v[i].w)));
    unsigned bits = __reduce_max_sync(0xffffffffu, __float_as_uint(most));
    if (bits == INFINITY_BITS) {
        most = 0;
#pragma unroll
        for (int i = 0; i < QUADS; i++)
            most = fmaxf(fmaxf(fmaxf(most, finite_magnitude(v[i].x)), finite_magnitude(v[i].y)),
                         fmaxf(finite_magnitude(v[i].z), finite_magnitude(v[i].w)));
        bits = __reduce_max_sync(0xffffffffu, __float_as_uint(most));
    }
    const int shift = min(TOP + 127 - (int)(bits >> 23), MOST_SHIFTED);
    return {__uint_as_float((unsigned)(127 + shift) << 23), __uint_as_float((unsigned)(127 - shift) << 23)};
}

/* A pair of floats as a pair of hi and a pair of lo; x factor - hi is exact. */
__device__ __forceinline__ void split_pair(float x, float y, float factor, uint32_t &hi, uint32_t &lo)
{
    const __half2 h = __floats2half2_rn(x * factor, y * factor);
    const float2 f = __half22float2(h);
    const __half2 l = __floats2half2_rn(fmaf(x, factor, -f.x), fmaf(y, factor, -f.y));
    hi = *(const uint32_t *)&h;
    lo = *(const uint32_t *)&l;
}

/* A warp's group into both parts; `first` is the part_offset of the lane's first four. */
template <bool ROWS>
__device__ __forceinline__ void store_group(unsigned char *parts, const float4 (&v)[QUADS], float factor, int first)
{
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
        uint2 hi, lo;
        split_pair(v[i].x, v[i].y, factor, hi.x, lo.x);
        split_pair(v[i].z, v[i].w, factor, hi.y, lo.y);
        unsigned char *const to = parts + next_offset<ROWS>(first, i);
        *(uint2 *)to = hi;
        *(uint2 *)(to + PART_BYTES) = lo;
    }
}

} // namespace matmul_fp32
