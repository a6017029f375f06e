/* What comes before and after the main kernel of the Hopper backward: small passes over memory.
 *
 * Before: delta = rowsum(dO O), lse in base 2, zeroed sums; reads 2 and writes at least 1 tensor. After: the fp32 sums of
 * dQ, which lie in the order of the products' fragments, to rows of the tensor; reads and writes one. */
#ifndef STEPBENCH_FLASH_BACKWARD_PASSES_SM90_CUH
#define STEPBENCH_FLASH_BACKWARD_PASSES_SM90_CUH

#include "kernels/cuda/flash_sm90.cuh"
#include "kernels/kernels.h"

namespace flash_sm90
{

/* ---- before ---- */

struct prepare_params {
    sb_tensor o, d_o;    /* (B, H, Sq, D) */
    const float *lse;    /* (B, H, Sq) */
    float *lse2, *delta; /* (B*H, rows in fragment_order): past Sq +inf and 0, so that P and dS are 0 there */
    float4 *zero;
    int64_t zero_count; /* float4 to clear: dQ sums and counters */
    sb_tensor dq;       /* data NULL, or where rows that see no key get zeros, for no key tile comes to them */
    int batch, heads, seq_q, rows, head_dim;
};

/* Sum of the products of 16 bytes of M. */
template <class M>
__device__ __forceinline__ float dot16(const uint4 &x, const uint4 &y)
{
    const M *const a = (const M *)&x, *const b = (const M *)&y;
    float sum = 0;
#pragma unroll
    for (int e = 0; e < 16 / (int)sizeof(M); e++)
        sum += (float)a[e] * (float)b[e];
    return sum;
}

/* How a warp shares rows: 16 bytes a lane, DEPTH rows a lane under way at once. */
template <class M, int DP, int DEPTH>
struct prepare_shape {
    static constexpr int LANES = DP * (int)sizeof(M) / 16, ROWS = 32 / LANES, CHUNK = ROWS * DEPTH;
};

/* M: type in memory. Rows of a head are a multiple of CHUNK. */
template <class M, int DP, int DEPTH>
__global__ void __launch_bounds__(256) flash_backward_prepare(const prepare_params p)
{
    using shape = prepare_shape<M, DP, DEPTH>;
    wait_for_previous_kernel();
    let_next_kernel_start();
    const uint32_t threads = gridDim.x * blockDim.x, id = blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t i = id; i < p.zero_count; i += threads)
        p.zero[i] = make_float4(0, 0, 0, 0);
    const int lane = threadIdx.x % 32, d = lane % shape::LANES * (16 / (int)sizeof(M));
    const uint32_t chunks = (uint32_t)p.batch * p.heads * p.rows / shape::CHUNK;
    for (uint32_t chunk = id / 32; chunk < chunks; chunk += threads / 32) {
        const uint32_t first = chunk * shape::CHUNK, bh = first / p.rows, b = bh / p.heads, h = bh - b * p.heads;
        const int i0 = first - bh * p.rows + lane / shape::LANES;
        const M *const o = (const M *)p.o.data + b * p.o.stride_b + h * p.o.stride_h + d;
        const M *const d_o = (const M *)p.d_o.data + b * p.d_o.stride_b + h * p.d_o.stride_h + d;
        uint4 x[DEPTH] = {}, y[DEPTH] = {};
        float lse[DEPTH];
#pragma unroll
        for (int u = 0; u < DEPTH; u++) {
            const int i = i0 + u * shape::ROWS;
            lse[u] = i < p.seq_q ? p.lse[(int64_t)bh * p.seq_q + i] : -INFINITY;
            if (i < p.seq_q && d < p.head_dim) {
                x[u] = *(const uint4 *)(o + i * p.o.stride_s);
                y[u] = *(const uint4 *)(d_o + i * p.d_o.stride_s);
            }
        }
#pragma unroll
        for (int u = 0; u < DEPTH; u++) {
            float sum = dot16<M>(x[u], y[u]);
#pragma unroll
            for (int n = shape::LANES / 2; n; n /= 2)
                sum += __shfl_xor_sync(~0u, sum, n);
            if (lane % shape::LANES == 0) {
                const int64_t row = (int64_t)bh * p.rows + fragment_order(i0 + u * shape::ROWS);
                p.lse2[row] = lse[u] > -INFINITY ? lse[u] * LOG2E : INFINITY; /* no keys, or no row */
                p.delta[row] = sum;
            }
            const int i = i0 + u * shape::ROWS;
            if (p.dq.data && lse[u] == -INFINITY && i < p.seq_q && d < p.head_dim)
                *(uint4 *)((M *)p.dq.data + b * p.dq.stride_b + h * p.dq.stride_h + i * p.dq.stride_s + d) =
                    make_uint4(0, 0, 0, 0);
        }
    }
}

/* ---- after: one block a query block ---- */
struct finish_params {
    const float *dq_sum;
    void *dq;
    int64_t dq_stride_b, dq_stride_h, dq_stride_s;
    int heads, seq_q, head_dim, query_blocks;
    float scale;
};

template <class M, int DP, int BM>
__global__ void __launch_bounds__(256) flash_backward_finish(const finish_params p)
{
    constexpr int DQ_N = DP == 128 ? BM : BM / 2, PITCH = DP + 4;
    __shared__ float rows[BM * PITCH];
    wait_for_previous_kernel();
    let_next_kernel_start();
    const int block = blockIdx.x % p.query_blocks;
    const int64_t bh = blockIdx.x / p.query_blocks;
    const int wg = threadIdx.x / 128, thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const float4 *const from = (const float4 *)p.dq_sum + ((int64_t)blockIdx.x * 2 + wg) * (DQ_N / 8 * 128) + thread;
    const int d = (DP == 128 ? wg * 64 : 0) + warp * 16 + lane / 4,
              q0 = (DP == 128 ? 0 : wg * (BM / 2)) + 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < DQ_N / 8; j++) {
        const float4 x = from[j * 128];
        float *const to = rows + (q0 + 8 * j) * PITCH + d;
        to[0] = x.x, to[PITCH] = x.y, to[8] = x.z, to[PITCH + 8] = x.w;
    }
    __syncthreads();
    M *const head = (M *)p.dq + bh / p.heads * p.dq_stride_b + bh % p.heads * p.dq_stride_h;
    for (int unit = threadIdx.x; unit < BM * (DP / 4); unit += 256) {
        const int q = unit / (DP / 4), e = unit % (DP / 4) * 4, i = block * BM + q;
        if (i >= p.seq_q || e >= p.head_dim)
            continue;
        const float4 x = *(const float4 *)(rows + q * PITCH + e);
        store_pair(head + i * p.dq_stride_s + e, x.x * p.scale, x.y * p.scale);
        store_pair(head + i * p.dq_stride_s + e + 2, x.z * p.scale, x.w * p.scale);
    }
}

} // namespace flash_sm90
#endif
