/* SPDX-License-Identifier: MIT */
/* E elements in one access of 8 or 16 bytes, held packed and computed on as fp32. Where streams of different dtypes run
 * side by side, all use the same E: neighbouring threads then touch neighbouring bytes of each. */
#pragma once

#include "kernels/cuda/primitives/vector.cuh"

__device__ __forceinline__ float to_float(float x)
{
    return x;
}
__device__ __forceinline__ float to_float(__half x)
{
    return __half2float(x);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

/* Rounds to nearest even. */
__device__ __forceinline__ void from_float(float x, float *to)
{
    *to = x;
}
__device__ __forceinline__ void from_float(float x, __half *to)
{
    *to = __float2half_rn(x);
}
__device__ __forceinline__ void from_float(float x, __nv_bfloat16 *to)
{
    *to = __float2bfloat16_rn(x);
}

template <typename T, int E>
struct alignas(E * sizeof(T)) packed {
    static constexpr int BYTES = E * sizeof(T), WORDS = BYTES / 4;
    static_assert(BYTES == 8 || BYTES == 16);
    unsigned w[WORDS];

    __device__ __forceinline__ void unpack(float (&x)[E]) const
    {
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            word<T>::unpack(w[i], x + i * word<T>::N);
    }
    __device__ __forceinline__ void pack(const float (&x)[E])
    {
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            w[i] = word<T>::pack(x + i * word<T>::N);
    }
    __device__ __forceinline__ void fill(T x)
    {
        const float both[2] = {to_float(x), to_float(x)};
#pragma unroll
        for (int i = 0; i < WORDS; i++)
            w[i] = word<T>::pack(both);
    }

    /* For memory that is touched once: the caches let go of it first. Volatile with a memory clobber, so that the
     * compiler starts these loads where they are written, and no other access ahead of them. */
    __device__ __forceinline__ void load_streaming(const T *from)
    {
        if constexpr (WORDS == 4)
            asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                         : "l"(from)
                         : "memory");
        else
            asm volatile("ld.global.cs.v2.u32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(from) : "memory");
    }
    __device__ __forceinline__ void store_streaming(T *to) const
    {
        if constexpr (WORDS == 4)
            asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]),
                         "r"(w[3])
                         : "memory");
        else
            asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(w[0]), "r"(w[1]) : "memory");
    }
};
