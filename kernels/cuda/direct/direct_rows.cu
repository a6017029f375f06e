/* SPDX-License-Identifier: MIT */
/* Counting, waiting and adding up for rows that copy engines move between GPUs; see kernels/shared/direct_rows.h.
 *
 * Bound: a wait takes a launch, and what is missing yet; a sum moves the bytes of its parts, residual and result once. A
 * thread loads all its parts before it adds any. */
#include "kernels/cuda/primitives/vector.cuh"
#include "kernels/cuda/runtime/context.h"
#include "kernels/shared/direct_layout.h"
#include "kernels/shared/direct_rows.h"

namespace
{

constexpr int THREADS = 256;

__global__ void direct_count_kernel(uint32_t *number)
{
    *number += 1;
}

/* A thread for each flag. */
__global__ void __launch_bounds__(32, 1) direct_await_kernel(const __grid_constant__ sb_direct_await a)
{
    const int i = threadIdx.x;
    const uint32_t number = *(const volatile uint32_t *)a.number;
    for (unsigned spins = 1; i < a.count; spins++) {
        uint32_t seen;
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(a.flags[i]) : "memory");
        if (direct_gate_is_open(seen, number))
            break;
        if (spins % 1024 == 0 && *(const volatile uint32_t *)a.leave)
            break;
    }
    __syncwarp();
    __threadfence_system();
}

template <typename T, int N>
__global__ void __launch_bounds__(THREADS) direct_sum_kernel(const __grid_constant__ sb_direct_sum a, size_t units)
{
    using V = vector16<T>;
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= units)
        return;
    V part[N], residual, out;
    float sum[V::N], each[V::N];
#pragma unroll
    for (int r = 0; r < N; r++)
        if (N <= 4 || r < a.count)
            part[r] = ((const V *)a.parts[r])[i];
    if (a.residual)
        residual = ((const V *)a.residual)[i];
    part[0].unpack(sum);
#pragma unroll
    for (int r = 1; r < N; r++)
        if (N <= 4 || r < a.count) {
            part[r].unpack(each);
#pragma unroll
            for (int k = 0; k < V::N; k++)
                sum[k] += each[k];
        }
    out.pack(sum);
    if (a.residual) {
        out.unpack(sum);
        residual.unpack(each);
#pragma unroll
        for (int k = 0; k < V::N; k++)
            sum[k] += each[k];
        out.pack(sum);
    }
    ((V *)a.out)[i] = out;
}

template <typename T>
sb_status launch_sum(const sb_direct_sum *p, cudaStream_t stream)
{
    const size_t units = p->n * sizeof(T) / 16;
    const unsigned blocks = (unsigned)((units + THREADS - 1) / THREADS);
    switch (p->count) {
    case 1: direct_sum_kernel<T, 1><<<blocks, THREADS, 0, stream>>>(*p, units); break;
    case 2: direct_sum_kernel<T, 2><<<blocks, THREADS, 0, stream>>>(*p, units); break;
    case 3: direct_sum_kernel<T, 3><<<blocks, THREADS, 0, stream>>>(*p, units); break;
    case 4: direct_sum_kernel<T, 4><<<blocks, THREADS, 0, stream>>>(*p, units); break;
    default: direct_sum_kernel<T, SB_DIRECT_RANKS_MAX><<<blocks, THREADS, 0, stream>>>(*p, units); break;
    }
    return sb_cuda_launched("direct_sum kernel");
}

} // namespace

extern "C" sb_status sb_cuda_direct_count(uint32_t *number, void *stream)
{
    direct_count_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(number);
    return sb_cuda_launched("direct_count kernel");
}

extern "C" sb_status sb_cuda_direct_await(const sb_direct_await *p, void *stream)
{
    SB_TRY(sb_direct_await_check(p));
    direct_await_kernel<<<1, 32, 0, (cudaStream_t)stream>>>(*p);
    return sb_cuda_launched("direct_await kernel");
}

extern "C" sb_status sb_cuda_direct_sum(const sb_direct_sum *p, void *stream)
{
    const sb_status s = sb_direct_sum_check(p);
    if (s != SB_OK || p->n == 0)
        return s;
    return with_element_type(p->dtype,
                             [&](auto element) { return launch_sum<decltype(element)>(p, (cudaStream_t)stream); });
}
