/* What a lane knows of itself and of its warp, told to the compiler. */
#ifndef STEPBENCH_FLASH_LANE_SM90_CUH
#define STEPBENCH_FLASH_LANE_SM90_CUH

namespace flash_sm90
{

/* The same number in every lane, as the compiler can't know of one that was loaded. */
__device__ __forceinline__ int uniform(int x)
{
    return __shfl_sync(~0u, x, 0);
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
