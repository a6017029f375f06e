/* SPDX-License-Identifier: MIT */
/* Reductions over a warp and a block, in an order that depends only on the block's size: the same values give the same
 * bits. */
#pragma once

struct add_op {
    static __device__ __forceinline__ float identity() { return 0.0f; }
    template <typename X>
    static __device__ __forceinline__ X apply(X x, X y)
    {
        return x + y;
    }
};

/* A NaN stays one, as in the reductions of frameworks. */
struct max_op {
    static __device__ __forceinline__ float identity() { return __uint_as_float(0xff800000u); }
    static __device__ __forceinline__ float apply(float x, float y)
    {
        float larger;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(y));
        return larger;
    }
};

template <typename OP, typename X>
__device__ __forceinline__ X warp_reduce(X x)
{
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        x = OP::apply(x, (X)__shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

/* Every thread gets the result. `shared` holds 32 values that no other reduction of the kernel uses; the block has
 * whole warps. */
template <typename OP, typename X>
__device__ __forceinline__ X block_reduce(X x, X *shared)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    x = warp_reduce<OP>(x);
    if (lane == 0)
        shared[warp] = x;
    __syncthreads();
    return warp_reduce<OP>(lane < warps ? shared[lane] : (X)OP::identity());
}

/* Sum in double of n values, by one block; every thread gets it. */
template <typename X>
__device__ __forceinline__ double block_sum(const X *x, int64_t n, double *shared)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        sum += (double)x[i];
    return block_reduce<add_op>(sum, shared);
}
