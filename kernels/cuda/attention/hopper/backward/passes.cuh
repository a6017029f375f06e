/* SPDX-License-Identifier: MIT */
/* What comes before and after the main kernel of the Hopper backward: small passes over memory.
 *
 * Before: delta = rowsum(dO O), lse in base 2, zeroed sums unless their first adder stores; reads 2 and writes at most 1
 * tensor. After: the fp32 sums of dQ, which are in the order of the products' fragments, go to rows of the tensor; it reads
 * all sums, adds them in that order, and writes one tensor. */
#pragma once

#include "kernels/cuda/attention/hopper/backward/steps.cuh"
#include "kernels/kernels.h"

namespace flash_hopper
{

/* ---- before ---- */

struct prepare_params {
    sb_tensor o, d_o;    /* (B, H, Sq, D) */
    const float *lse;    /* (B, H, Sq) */
    float *lse2, *delta; /* (B*H, rows in fragment_order): past Sq +inf and 0, so that P and dS are 0 there */
    float lse_factor;    /* what lse2 is, of lse: base 2, or natural where one rounding would be too many */
    float4 *zero;
    int64_t zero_count; /* float4 to clear: dQ sums, if they are added to, and counters */
    sb_tensor dq;       /* data NULL, or where rows that see no key get zeros, for no key tile comes to them */
    int batch, heads, seq_q, rows, head_dim;
    const int *cu_seqlens_q; /* PACKED only: rows of a head are numbered by query blocks as in backward_params */
    int documents;
};

/* A query block of packed documents, BM rows: the tensor's row of its first query, and how many of its document are left
 * from there on, which is negative where the number has no block. */
struct packed_rows {
    int first, left;
};
template <int BM>
__device__ __forceinline__ packed_rows find_packed_rows(const int *cu_seqlens_q, int documents, int block)
{
    const int i = documents::find(cu_seqlens_q, documents, BM, block), begin = cu_seqlens_q[i];
    const int first = begin + (block - begin / BM - i) * BM;
    return {first, cu_seqlens_q[i + 1] - first};
}

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

/* M: type in memory. Rows of a head are a multiple of CHUNK. BLOCK: query rows of a block if PACKED. */
template <class M, int DP, int DEPTH, bool PACKED = false, int BLOCK = 64>
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
        int past = 0, end = p.seq_q; /* the tensor has row i at i - past, if that is before `end` */
        if constexpr (PACKED) {
            static_assert(BLOCK % shape::CHUNK == 0, "a chunk lies in a block");
            const int block = (int)(first - bh * p.rows) / BLOCK;
            const packed_rows rows = find_packed_rows<BLOCK>(p.cu_seqlens_q, p.documents, block);
            past = block * BLOCK - rows.first, end = rows.first + max(rows.left, 0);
        }
#pragma unroll
        for (int u = 0; u < DEPTH; u++) {
            const int i = i0 + u * shape::ROWS - past;
            lse[u] = i < end ? p.lse[(int64_t)bh * p.seq_q + i] : -INFINITY;
            if (i < end && d < p.head_dim) {
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
                p.lse2[row] = lse[u] > -INFINITY ? lse[u] * p.lse_factor : INFINITY; /* no keys, or no row */
                p.delta[row] = sum;
            }
            const int i = i0 + u * shape::ROWS - (PACKED ? past : 0);
            if (p.dq.data && lse[u] == -INFINITY && i < (PACKED ? end : p.seq_q) && d < p.head_dim)
                *(uint4 *)((M *)p.dq.data + b * p.dq.stride_b + h * p.dq.stride_h + i * p.dq.stride_s + d) =
                    make_uint4(0, 0, 0, 0);
        }
    }
}

/* ---- after ---- */
struct finish_params {
    const float *dq_sum;
    void *dq;
    int64_t dq_stride_b, dq_stride_h, dq_stride_s;
    int64_t sum_stride;          /* float4 from one sum to the next */
    int sums, early, early_sums; /* as in backward_params */
    int key_tiles, keys_ahead;   /* query i sees keys up to i + keys_ahead, all if that is past the last */
    int pairs;                   /* 1: two key tiles are one adder; else 0 */
    int heads, seq_q, head_dim, query_blocks;
    float scale;
    const int *cu_seqlens_q; /* PACKED only */
    int documents;
};

/* One sum: a block for each query block. Problems with several sums have few query blocks, so each has a block for every
 * fragment of 4 that a thread has of it, 4 to 8, or for two or four of them, so that a thread has about 8 loads under way.
 * AT_ONCE: sums that are loaded before the first of them is used; ptxas leaves it so if it need not make room for more than two
 * blocks a multiprocessor. */
template <class MEM, int AT_ONCE>
struct finish_shape {
    static constexpr bool TRANSPOSED = !MEM::DQ_ROWS, BY_D = MEM::DQ_BY_D; /* what a group has: see backward_memory */
    static constexpr int QUERIES = MEM::tile_q::ROWS,
                         FRAGMENTS = MEM::DQ / 4; /* fragments of a thread in a query block */
    static constexpr int own(int most)
    {
        return most >= FRAGMENTS ? FRAGMENTS : FRAGMENTS % most ? own(most - 1) : most;
    }
    static constexpr int OWN = own(8 / AT_ONCE), PIECES = FRAGMENTS / OWN;
    /* what a block gathers: queries and columns of d, in the order of the groups that have them */
    static constexpr int SPAN = 8 * OWN; /* how far a group reaches along its fragments */
    static constexpr int ROWS = !TRANSPOSED ? QUERIES : BY_D ? SPAN : 2 * SPAN;
    static constexpr int COLUMNS = TRANSPOSED ? MEM::DP : 2 * SPAN, PITCH = COLUMNS + 4;

    __device__ static int query(int row, int piece)
    {
        return TRANSPOSED ? row / SPAN * (QUERIES / 2) + piece * SPAN + row % SPAN : row;
    }
    __device__ static int d(int column, int piece)
    {
        return TRANSPOSED ? column : column / SPAN * (MEM::COLUMNS / 2) + piece * SPAN + column % SPAN;
    }
    /* The j-th fragment of a thread: two neighbours along the columns of the product, and eight rows further down. */
    __device__ static void gather(float *rows, const float4 &x, int wg, int warp, int lane, int j)
    {
        const int m = warp * 16 + lane / 4, n = 8 * j + 2 * (lane % 4);
        if (TRANSPOSED) {
            float *const to = rows + ((BY_D ? 0 : wg * SPAN) + n) * PITCH + (BY_D ? wg * 64 : 0) + m;
            to[0] = x.x, to[PITCH] = x.y, to[8] = x.z, to[PITCH + 8] = x.w;
        } else {
            float *const to = rows + m * PITCH + wg * SPAN + n;
            store_pair(to, x.x, x.y);
            store_pair(to + 8 * PITCH, x.z, x.w);
        }
    }
};

/* How many of its sums a query block has, the first ones: only those that an adder has stored to. */
template <int BM, int KEYS>
__device__ __forceinline__ int finish_sums(const finish_params &p, int block)
{
    const int adders = (tiles_seen<BM, KEYS>(block, p.keys_ahead, p.key_tiles) + p.pairs) >> p.pairs;
    if (p.sums == 0)
        return 1;
    return min(adders, p.early_sums) + min(max(adders - p.early, 0), p.sums - p.early_sums);
}

template <class M, class MEM, int AT_ONCE, bool PACKED = false>
__global__ void __launch_bounds__(256, 2) flash_backward_finish(const finish_params p)
{
    using shape = finish_shape<MEM, AT_ONCE>;
    __shared__ float rows[shape::ROWS * shape::PITCH];
    wait_for_previous_kernel();
    let_next_kernel_start();
    const int place = blockIdx.x / shape::PIECES, piece = blockIdx.x % shape::PIECES;
    const int block = place % p.query_blocks, bh = place / p.query_blocks;
    const int wg = threadIdx.x / 128, thread = threadIdx.x % 128;
    const float4 *const from =
        (const float4 *)p.dq_sum + (((int64_t)place * 2 + wg) * shape::FRAGMENTS + piece * shape::OWN) * 128 + thread;
    const int sums = finish_sums<shape::QUERIES, MEM::tile_kv::ROWS>(p, block);
    float4 sum[shape::OWN] = {};
#pragma unroll 1
    for (int first = 0; first < sums; first += AT_ONCE) {
        float4 x[AT_ONCE][shape::OWN];
#pragma unroll
        for (int n = 0; n < AT_ONCE; n++) /* without a branch: past the last sum that one again */
#pragma unroll
            for (int j = 0; j < shape::OWN; j++)
                x[n][j] = from[min(first + n, sums - 1) * p.sum_stride + j * 128];
#pragma unroll
        for (int n = 0; n < AT_ONCE; n++)
#pragma unroll
            for (int j = 0; j < shape::OWN; j++)
                if (first + n < sums)
                    sum[j].x += x[n][j].x, sum[j].y += x[n][j].y, sum[j].z += x[n][j].z, sum[j].w += x[n][j].w;
    }
#pragma unroll
    for (int j = 0; j < shape::OWN; j++)
        shape::gather(rows, sum[j], wg, thread / 32, thread % 32, j);
    __syncthreads();
    int first_row = block * shape::QUERIES, end = p.seq_q;
    if constexpr (PACKED) {
        const packed_rows of = find_packed_rows<shape::QUERIES>(p.cu_seqlens_q, p.documents, block);
        first_row = of.first, end = of.first + max(of.left, 0);
    }
    M *const head = (M *)p.dq + bh / p.heads * p.dq_stride_b + bh % p.heads * p.dq_stride_h;
    for (int unit = threadIdx.x; unit < shape::ROWS * (shape::COLUMNS / 4); unit += 256) {
        const int row = unit / (shape::COLUMNS / 4), column = unit % (shape::COLUMNS / 4) * 4;
        const int i = first_row + shape::query(row, piece), d = shape::d(column, piece);
        if (i >= end || d >= p.head_dim)
            continue;
        const float4 x = *(const float4 *)(rows + row * shape::PITCH + column);
        store_pair(head + i * p.dq_stride_s + d, x.x * p.scale, x.y * p.scale);
        store_pair(head + i * p.dq_stride_s + d + 2, x.z * p.scale, x.w * p.scale);
    }
}

} // namespace flash_hopper
