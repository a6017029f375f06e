/* SPDX-License-Identifier: MIT */
/* What a lane knows of itself and of its warp, told to the compiler. */
#ifndef STEPBENCH_CUDA_HOPPER_WARP_CUH
#define STEPBENCH_CUDA_HOPPER_WARP_CUH

namespace flash_sm90
{

/* The same number in every lane, as the compiler can't know of one that was loaded. */
__device__ __forceinline__ int uniform(int x)
{
    return __shfl_sync(~0u, x, 0);
}

/* A number in shared memory that another thread will overwrite when this warp gives it back. One lane reads it, which is also
 * the one that arrives (elect.sync chooses it on Hopper): what other lanes had read before that would be ordered by a warp
 * barrier alone, and ptxas makes nothing of one where a warp has not diverged, so that compute-sanitizer would call it a race. */
__device__ __forceinline__ int read_uniform(const volatile int &x)
{
    int number = 0;
    if (threadIdx.x % 32 == 0)
        number = x;
    return uniform(number);
}

/* Asked anew: what a job's begin and end derive from it must not be kept in registers all through the steps. */
__device__ __forceinline__ int lane_asked()
{
    int lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

} // namespace flash_sm90
#endif
