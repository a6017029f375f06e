/* SPDX-License-Identifier: MIT */
/* All-gather of slices that GPUs of one host load from each other's memory; see kernels/shared/direct.h.
 *
 * Bound: the link, (n-1)/n of the gathered bytes one way. A load over NVLink takes about 1 us, so some 0.5 MB must be
 * under way: with 16 blocks 512 threads load 8 times 16 bytes each before they store any. Every rank begins with its own
 * slice and goes on with that of the next rank, so that no two load from the same one. */
#include "kernels/cuda/runtime/context.h"
#include "kernels/shared/direct.h"

namespace
{

constexpr int THREADS = 512, LOADS = 8, BLOCKS = 16;

struct arguments {
    const uint4 *from[SB_DIRECT_RANKS_MAX];
    uint4 *to;
    size_t units; /* units of 16 bytes in a slice */
    int rank, ranks;
};

/* Past L1, which does not know what other GPUs have written. */
__global__ void __launch_bounds__(THREADS, 1) direct_all_gather_kernel(const __grid_constant__ arguments a)
{
    const size_t stride = (size_t)gridDim.x * THREADS * LOADS;
    for (int k = 0; k < a.ranks; k++) {
        const int r = a.rank + k < a.ranks ? a.rank + k : a.rank + k - a.ranks;
        const uint4 *from = a.from[r];
        uint4 *to = a.to + r * a.units;
        for (size_t first = (size_t)blockIdx.x * THREADS * LOADS + threadIdx.x; first < a.units; first += stride) {
            uint4 x[LOADS];
#pragma unroll
            for (int i = 0; i < LOADS; i++)
                if (first + i * THREADS < a.units)
                    x[i] = __ldcg(from + first + i * THREADS);
#pragma unroll
            for (int i = 0; i < LOADS; i++)
                if (first + i * THREADS < a.units)
                    to[first + i * THREADS] = x[i];
        }
    }
}

} // namespace

sb_status sb_cuda_direct_all_gather(const sb_direct_all_gather *p, void *stream)
{
    const sb_status s = sb_direct_gather_check(p);
    if (s != SB_OK || p->bytes == 0)
        return s;
    arguments a = {};
    for (int r = 0; r < p->ranks; r++)
        a.from[r] = (const uint4 *)p->slices[r];
    a.to = (uint4 *)p->out;
    a.units = p->bytes / 16;
    a.rank = p->rank;
    a.ranks = p->ranks;
    const size_t wanted = (a.units + THREADS * LOADS - 1) / (THREADS * LOADS);
    const size_t most = p->max_blocks ? (size_t)p->max_blocks : BLOCKS;
    direct_all_gather_kernel<<<(unsigned)(wanted < most ? wanted : most), THREADS, 0, (cudaStream_t)stream>>>(a);
    return sb_cuda_launched("all-gather between GPUs");
}
