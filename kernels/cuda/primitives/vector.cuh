/* SPDX-License-Identifier: MIT */
/* 16-byte vectors of tensor elements: one load or store each, held packed in four registers, computed on as fp32. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/kernels.h"

/* Elements in one 32-bit word of memory. */
template <typename T>
struct word;

template <>
struct word<float> {
    static constexpr int N = 1;
    static __device__ __forceinline__ void unpack(unsigned w, float *x) { x[0] = __uint_as_float(w); }
    static __device__ __forceinline__ unsigned pack(const float *x) { return __float_as_uint(x[0]); }
};

template <>
struct word<__half> {
    static constexpr int N = 2;
    static __device__ __forceinline__ void unpack(unsigned w, float *x)
    {
        x[0] = __half2float(__ushort_as_half((unsigned short)w));
        x[1] = __half2float(__ushort_as_half((unsigned short)(w >> 16)));
    }
    static __device__ __forceinline__ unsigned pack(const float *x)
    {
        return (unsigned)__half_as_ushort(__float2half_rn(x[1])) << 16 | __half_as_ushort(__float2half_rn(x[0]));
    }
};

template <>
struct word<__nv_bfloat16> {
    static constexpr int N = 2;
    static __device__ __forceinline__ void unpack(unsigned w, float *x)
    {
        x[0] = __uint_as_float(w << 16);
        x[1] = __uint_as_float(w & 0xffff0000u);
    }
    static __device__ __forceinline__ unsigned pack(const float *x)
    {
        return (unsigned)__bfloat16_as_ushort(__float2bfloat16_rn(x[1])) << 16 |
               __bfloat16_as_ushort(__float2bfloat16_rn(x[0]));
    }
};

template <typename T>
struct alignas(16) vector16 {
    static constexpr int N = 4 * word<T>::N;
    unsigned w[4];

    __device__ __forceinline__ void unpack(float (&x)[N]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            word<T>::unpack(w[i], x + i * word<T>::N);
    }
    __device__ __forceinline__ void pack(const float (&x)[N])
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            w[i] = word<T>::pack(x + i * word<T>::N);
    }
    /* `zero` is 0, which the compiler must not know: it then cannot keep unpacked copies made before this point for use
     * after it, and a long row held in registers stays packed there. Volatile keeps it in its place. */
    __device__ __forceinline__ void stay_packed(unsigned zero)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm volatile("xor.b32 %0, %0, %1;" : "+r"(w[i]) : "r"(zero));
    }
};

/* f(T()) with the element type of a dtype. */
template <typename F>
auto with_element_type(sb_dtype dtype, F f)
{
    if (dtype == SB_BF16)
        return f(__nv_bfloat16());
    if (dtype == SB_FP16)
        return f(__half());
    return f(float());
}

/* One element whose dtype the compiler does not know. */
__device__ __forceinline__ float get_element(const void *p, sb_dtype dtype, int64_t at)
{
    if (dtype == SB_BF16)
        return (float)((const __nv_bfloat16 *)p)[at];
    if (dtype == SB_FP16)
        return (float)((const __half *)p)[at];
    return ((const float *)p)[at];
}

__device__ __forceinline__ void set_element(void *p, sb_dtype dtype, int64_t at, float x)
{
    if (dtype == SB_BF16)
        ((__nv_bfloat16 *)p)[at] = (__nv_bfloat16)x;
    else if (dtype == SB_FP16)
        ((__half *)p)[at] = (__half)x;
    else
        ((float *)p)[at] = x;
}
