/* SPDX-License-Identifier: MIT */
/* D = op(A) op(B) + C, fp32 in memory, on Hopper's fp16 tensor cores: the kernel. Launched by matmul_fp32.cu.
 * Each operand becomes hi + lo, hi = fp16(x s), lo = fp16(x s - hi); a product is lo hi + hi lo + hi hi (Ootomo and Yokota,
 * arXiv 2203.03341). The scale s is a power of two that takes the largest finite magnitude among 16 rows of op(A), or 16
 * columns of op(B), and 64 of k to [2^14, 2^15): elements keep 22 bits down to 2^-18 of it. Sums of 64 of k are added to fp32
 * registers by rounded additions, for tensor cores truncate (DeepSeek-V3, arXiv 2412.19437, section 3.3.2). An infinity or NaN
 * makes only its own row or column NaN.
 * A tile of D is 128 x 128, a step 64 of k: 1536 clocks of tensor core. A thread starts the products of one step, converts the
 * next while they run, and starts the loads of the one after. The blocks of a cluster cut a list of tiles into equal ranges of
 * steps; parts of a tile meet in shared memory and are added in the order of k: the same bits every time, no workspace. */
#pragma once

#include "kernels/cuda/matmul/hopper/matmul_fp32_convert.cuh"
#include "kernels/cuda/matmul/hopper/matmul_fp32_result.cuh"
#include "kernels/cuda/hopper/ptx.cuh"
#include "kernels/cuda/hopper/wgmma.cuh"

namespace matmul_fp32
{

using namespace hopper;

/* D = A B over one step, 64 rows of A from a on; the small terms first, while the sum is small. */
template <bool A_ROWS, bool B_ROWS>
__device__ __forceinline__ void multiply(float (&d)[TILE / 2], uint32_t a, uint32_t b)
{
    constexpr int A_K16 = A_ROWS ? 16 * ROW_BYTES : 32, B_K16 = B_ROWS ? 16 * ROW_BYTES : 32;
    const uint64_t a0 = wgmma_descriptor(a, 16), b0 = wgmma_descriptor(b, B_ROWS ? PANEL_BYTES : 16);
#pragma unroll
    for (int p = 0; p < 3; p++)
#pragma unroll
        for (int k = 0; k < STEP / 16; k++) {
            const int at_a = (p == 0) * PART_BYTES + k * A_K16, at_b = (p == 1) * PART_BYTES + k * B_K16;
            wgmma<__half, TILE, A_ROWS, B_ROWS>(d, a0 + (at_a >> 4), b0 + (at_b >> 4), p + k != 0);
        }
}

/* The sum of a step, out of its scales, to the sum of all. The factor is a power of two, exact below 2^-126 too; it is
 * 0 where the largest magnitudes have a product under 2^-121, and infinity where it is over 2^155. */
__device__ __forceinline__ void add_step(float (&sum)[TILE / 2], const float (&step)[TILE / 2], float inverse_a,
                                         const float *inverse_b)
{
#pragma unroll
    for (int g = 0; g < WARPS; g++) {
        const float factor = inverse_a * inverse_b[g];
#pragma unroll
        for (int i = 0; i < 2 * 4; i++)
            sum[8 * g + i] = fmaf(step[8 * g + i], factor, sum[8 * g + i]);
    }
}

/* What the loads of a block read next: a step of its list. */
struct place {
    int tile, step;
    int outer_a, outer_b; /* outer index of this warp's groups */

    __device__ __forceinline__ void find(const params &p, int warp)
    {
        outer_a = tile % p.tiles_m * TILE + warp * GROUP;
        outer_b = tile / p.tiles_m * TILE + warp * GROUP;
    }
    __device__ __forceinline__ void next(const params &p, int warp)
    {
        if (++step == p.steps) {
            step = 0, tile++;
            find(p, warp);
        }
    }
};

template <bool A_ROWS, bool B_ROWS>
__global__ void __launch_bounds__(THREADS, 1) matmul_fp32_kernel(const __grid_constant__ params p)
{
    extern __shared__ __align__(1024) unsigned char smem[];
    const uint32_t base = smem_u32(smem), full = base + BARRIERS, empty = full + 16;
    float *const scales = (float *)(smem + SCALES);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int rank = cluster_rank(), ranks = cluster_size();
    if (threadIdx.x == 0) {
        for (int i = 0; i < 4; i++)
            mbarrier_init(full + 8 * i, WARPS);
        mbarrier_init_fence();
    }
    __syncthreads();
    let_next_kernel_start();

    /* this block's steps, and where each thread reads and writes in them */
    const share own = share_of(p, blockIdx.x / ranks, gridDim.x / ranks, rank, ranks);
    const int count = own.end - own.begin;
    place at = {own.first_tile + own.begin / p.steps, own.begin % p.steps, 0, 0};
    at.find(p, warp);
    int number = at.tile, step = at.step, part_begin = at.step; /* where the products are */
    const int first_a = part_offset<A_ROWS>(warp * GROUP + quad_outer<A_ROWS>(lane, 0), quad_k<A_ROWS>(lane, 0));
    const int first_b =
        OPERAND_BYTES + part_offset<B_ROWS>(warp * GROUP + quad_outer<B_ROWS>(lane, 0), quad_k<B_ROWS>(lane, 0));

    float sum[TILE / 2], product[TILE / 2];
    float4 a[QUADS], b[QUADS];
#pragma unroll
    for (int i = 0; i < TILE / 2; i++)
        sum[i] = 0;

    /* Converts the i-th step of the block, which a and b hold, and loads the next. Returns A's inverse scale. */
    auto convert = [&](int i) {
        unsigned char *const buffer = smem + (i & 1) * BUFFER_BYTES;
        const int left = p.k - at.step * STEP;
        const bool more = i + 1 < count;
        if (left < STEP) {
            clear_beyond<A_ROWS>(a, left, lane);
            clear_beyond<B_ROWS>(b, left, lane);
        }
        at.next(p, warp);
        const scaling scale_a = group_scaling(a);
        store_group<A_ROWS>(buffer, a, scale_a.factor, first_a);
        if (more)
            load_group<A_ROWS>(a, p.a, p.k, at.outer_a, at.step * STEP, lane);
        const scaling scale_b = group_scaling(b);
        store_group<B_ROWS>(buffer, b, scale_b.factor, first_b);
        if (more)
            load_group<B_ROWS>(b, p.b, p.k, at.outer_b, at.step * STEP, lane);
        if (lane == 0)
            scales[i % SCALE_SLOTS * WARPS + warp] = scale_b.inverse;
        fence_async_proxy();
        __syncwarp();
        if (lane == 0)
            mbarrier_arrive(full + 8 * (i & 1));
        return scale_a.inverse;
    };

    /* products of step i run while step i + 1 is converted; then they are added with its scales */
    wait_for_previous_kernel();
    load_group<A_ROWS>(a, p.a, p.k, at.outer_a, at.step * STEP, lane);
    load_group<B_ROWS>(b, p.b, p.k, at.outer_b, at.step * STEP, lane);
    float next_inverse = convert(0);
    for (int i = 0; i < count; i++) {
        const uint32_t buffer = base + (i & 1) * BUFFER_BYTES;
        const float inverse_a = next_inverse;
        mbarrier_wait(full + 8 * (i & 1), i >> 1 & 1);
        wgmma_fence();
        multiply<A_ROWS, B_ROWS>(product, buffer + warp / 4 * PANEL_BYTES, buffer + OPERAND_BYTES);
        wgmma_commit();
        if (i + 1 < count) {
            if (i > 0) /* both groups are done with the products of step i - 1 */
                mbarrier_wait(empty + 8 * (i + 1 & 1), (i - 1) >> 1 & 1);
            next_inverse = convert(i + 1);
        }
        wgmma_wait<0>();
        pin(product);
        if (lane == 0)
            mbarrier_arrive(empty + 8 * (i & 1));
        add_step(sum, product, inverse_a, scales + i % SCALE_SLOTS * WARPS);
        /* a tile's last step: its sums are the result, or the last part of a tile that another block began */
        if (++step < p.steps)
            continue;
        if (part_begin == 0)
            store_tile(sum, p, number % p.tiles_m * TILE + warp * GROUP + lane / 4,
                       number / p.tiles_m * TILE + lane % 4 * 2);
        else
            leave_partial(sum, smem + HEAD, warp, lane);
        number++, step = 0, part_begin = 0;
#pragma unroll
        for (int j = 0; j < TILE / 2; j++)
            sum[j] = 0;
    }
    if (ranks == 1)
        return;

    /* tiles that several blocks have parts of are added up, each rank a share of the rows */
    __syncthreads(); /* the other group may still read the buffers */
    if (step > 0)
        leave_partial(sum, smem + (part_begin == 0 ? TAIL : HEAD), warp, lane);
    cluster_sync();
    if (own.begin % p.steps != 0)
        merge(p, own, own.begin / p.steps, base, rank, ranks);
    if (own.end % p.steps != 0 && own.end / p.steps * p.steps >= own.begin)
        merge(p, own, own.end / p.steps, base, rank, ranks);
    cluster_sync(); /* a block's shared memory must outlive its readers */
}

} // namespace matmul_fp32
