/* SPDX-License-Identifier: MIT */
/* Rows of a table by id, and the gradient of the table. Bound by memory: forward reads and writes each row of out
 * once; backward reads d_out once and writes the whole d_table once, most of which is zeros.
 *
 * Backward sorts the tokens by id (primitives/token_sort.cuh). Then a warp writes a tile of a row of d_table with the sum of the
 * tokens of its id, or with zeros, or adds that sum where the row has tokens; an id of many tokens is summed by a whole
 * block. All sums are fp32, in an order fixed by the ids. */
#include "kernels/cuda/primitives/row_chunks.cuh"
#include "kernels/cuda/primitives/token_sort.cuh"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

namespace
{

constexpr int EACH = 2; /* chunks a thread of forward copies */

constexpr int SUM_WARPS = 16,
              WARP_ROWS = 4; /* warps in a block of the backward; rows of d_table that a warp looks up at once */
constexpr int LONG = 32;     /* an id with this many tokens is summed by a whole block */
constexpr int SHARE = 8;     /* tokens that each warp of that block takes at a time */
constexpr int AHEAD = 2;     /* rows of d_out that a warp has in flight */

/* Columns that a lane sums, as many as its registers allow; a tile has up to 32 times as many. */
template <typename T, int N>
constexpr int LANE_COLUMNS = N == 1 ? 4 : 32 / (int)sizeof(T);

/* A row is tiles.n of U. */
template <typename U>
__global__ void __launch_bounds__(TILE_THREADS)
    embedding_forward_kernel(const int *ids, const U *table, U *out, row_tiles tiles, int first_id, unsigned vocab)
{
    const tile_span span = this_tile(tiles);
    const unsigned row = (unsigned)ids[span.row] - (unsigned)first_id;
    const bool held = row < vocab;
    table += (int64_t)(held ? row : 0) * tiles.n;
    out += (int64_t)span.row * tiles.n;
    U x[EACH] = {};
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = span.start + (int)(threadIdx.x + i * blockDim.x);
        if (at < span.end && held)
            x[i] = table[at];
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = span.start + (int)(threadIdx.x + i * blockDim.x);
        if (at < span.end)
            out[at] = x[i];
    }
}

template <typename U>
sb_status launch_forward(const sb_embedding *p, int64_t n, cudaStream_t stream)
{
    const row_tiles tiles = tile_rows((int)n, EACH * TILE_THREADS);
    const int64_t blocks = (int64_t)p->rows * tiles.tiles;
    if (blocks > INT_MAX)
        return sb_error(SB_UNSUPPORTED, "embedding_forward: %d rows of d %d are more than one launch can do", p->rows,
                        p->d);
    embedding_forward_kernel<U><<<(unsigned)blocks, tile_threads(tiles, EACH), 0, stream>>>(
        p->ids, (const U *)p->table, (U *)p->out, tiles, p->slice ? p->first_id : 0, (unsigned)p->vocab);
    return sb_cuda_launched("embedding kernel");
}

/* The lane's position among the 32 tokens from `place` on, and how many of the first of them have the key. */
__device__ __forceinline__ int run_from(const token *sorted, int rows, int64_t place, unsigned key, int &position)
{
    token t = no_token();
    if (place + threadIdx.x % 32 < rows)
        t = sorted[place + threadIdx.x % 32];
    position = t.position;
    return __clz(__brev(~__ballot_sync(0xffffffffu, t.key == key)));
}

/* Adds rows of d_out to the lane's columns of a tile, one after the other: those whose positions the first `count`
 * lanes have. Lanes beyond the tile read its last chunk. */
template <typename T, int N>
__device__ __forceinline__ void add_rows(float (&sums)[LANE_COLUMNS<T, N> / N][N], const T *d_out, int d,
                                         const tile_span &span, int position, int count)
{
    constexpr int CHUNKS = LANE_COLUMNS<T, N> / N;
    const int lane = (int)threadIdx.x % 32;
#pragma unroll 1
    for (int k = 0; k < count; k += AHEAD) {
        chunk<T, N> x[AHEAD][CHUNKS];
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            const T *row = d_out + (int64_t)__shfl_sync(0xffffffffu, position, (k + a) % 32) * d;
            if (k + a < count)
#pragma unroll
                for (int c = 0; c < CHUNKS; c++)
                    x[a][c] = load_chunk<N>(row, min(span.start + lane + 32 * c, span.end - 1));
        }
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (k + a < count)
#pragma unroll
                for (int c = 0; c < CHUNKS; c++) {
                    float f[N];
                    x[a][c].unpack(f);
#pragma unroll
                    for (int j = 0; j < N; j++)
                        sums[c][j] += f[j];
                }
    }
}

/* A tile of the row of an id with many tokens: warp w adds SHARE tokens from the w * SHARE-th on, then as many
 * SUM_WARPS * SHARE further on, and so forth; then the threads add up what the warps have. */
template <bool ADDS, typename T, typename G, int N>
__device__ __forceinline__ void write_long_row(const T *d_out, G *row, const token_sort &s, int rows, int d,
                                               const tile_span &span, int id, float (*shared)[32 * LANE_COLUMNS<T, N>])
{
    constexpr int COLUMNS = LANE_COLUMNS<T, N>;
    static_assert(COLUMNS <= SUM_WARPS, "a warp adds up one of the columns of each lane");
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    float sums[COLUMNS / N][N] = {};
    int64_t place = s.first[id] + warp * SHARE;
    for (int count = SHARE; count == SHARE; place += SUM_WARPS * SHARE) {
        int position;
        count = min(run_from(s.sorted, rows, place, token_key(id), position), SHARE);
        add_rows(sums, d_out, d, span, position, count);
    }
#pragma unroll
    for (int k = 0; k < COLUMNS; k++)
        shared[warp][k * 32 + lane] = sums[k / N][k % N];
    __syncthreads();
    const int at = span.start + lane + 32 * (warp / N);
    if (warp < COLUMNS && at < span.end) {
        float sum = 0;
        for (int w = 0; w < SUM_WARPS; w++)
            sum += shared[w][threadIdx.x];
        G &to = row[(int64_t)at * N + warp % N];
        to = (G)(ADDS ? (float)to + sum : sum);
    }
    __syncthreads();
}

/* A block writes a tile of `block_rows` rows of d_table, WARP_ROWS of a warp or fewer. */
template <bool ADDS, typename T, typename G, int N>
__global__ void __launch_bounds__(32 * SUM_WARPS, 2)
    embedding_backward_kernel(const T *d_out, G *d_table, token_sort s, int rows, int vocab, int d, int block_rows,
                              row_tiles tiles)
{
    constexpr int CHUNKS = LANE_COLUMNS<T, N> / N;
    __shared__ float shared[SUM_WARPS][32 * CHUNKS * N];
    __shared__ bool is_long[SUM_WARPS * WARP_ROWS];
    const tile_span span = this_tile(tiles);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int first_id = span.row * block_rows, ids = min(block_rows, vocab - first_id);
    int place[WARP_ROWS], position[WARP_ROWS], count[WARP_ROWS];
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++) {
        const int i = r * SUM_WARPS + warp;
        place[r] = i < ids ? s.first[first_id + i] : -1;
    }
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++) {
        const unsigned key = token_key(first_id + r * SUM_WARPS + warp);
        count[r] = run_from(s.sorted, rows, place[r] < 0 ? rows : place[r], key, position[r]);
    }
    bool any_long = false;
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++) {
        const int i = r * SUM_WARPS + warp;
        any_long |= count[r] == LONG;
        if (lane == 0)
            is_long[i] = count[r] == LONG;
        if (i >= ids || count[r] == LONG || (ADDS && count[r] == 0))
            continue;
        float sums[CHUNKS][N] = {};
        add_rows(sums, d_out, d, span, position[r], count[r]);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int at = span.start + lane + 32 * c;
            G *row = d_table + (int64_t)(first_id + i) * d;
            chunk<G, N> packed;
            if (ADDS) {
                float held[N];
                load_chunk<N>(row, min(at, span.end - 1)).unpack(held);
#pragma unroll
                for (int j = 0; j < N; j++)
                    sums[c][j] += held[j];
            }
            packed.pack(sums[c]);
            if (at < span.end)
                store_chunk<N>(row, at, packed);
        }
    }
    if (!__syncthreads_or(any_long))
        return;
    for (int i = 0; i < ids; i++)
        if (is_long[i])
            write_long_row<ADDS, T, G, N>(d_out, d_table + (int64_t)(first_id + i) * d, s, rows, d, span, first_id + i,
                                          shared);
}

template <bool ADDS, typename T, typename G, int N>
sb_status launch_backward(const sb_context *ctx, const sb_embedding *p, const token_sort &s, cudaStream_t stream)
{
    const row_tiles tiles = tile_rows(p->d / N, 32 * LANE_COLUMNS<T, N> / N);
    /* Large blocks look up more at once; where they would leave SMs idle, small ones. */
    const int64_t large = SUM_WARPS * WARP_ROWS;
    const int64_t block_rows = p->vocab / large * tiles.tiles >= 2 * ctx->sm_count ? large : SUM_WARPS;
    const int64_t blocks = (p->vocab + block_rows - 1) / block_rows * tiles.tiles;
    if (blocks > INT_MAX)
        return sb_error(SB_UNSUPPORTED, "embedding_backward: vocab %d of d %d is more than one launch can do", p->vocab,
                        p->d);
    SB_TRY(sort_tokens(p->ids, p->rows, s, stream));
    embedding_backward_kernel<ADDS, T, G, N><<<(unsigned)blocks, 32 * SUM_WARPS, 0, stream>>>(
        (const T *)p->d_out, (G *)p->d_table, s, p->rows, p->vocab, p->d, (int)block_rows, tiles);
    return sb_cuda_launched("embedding gradient kernel");
}

} // namespace

extern "C" sb_status sb_cuda_embedding_forward(sb_context *ctx, const sb_embedding *p, void *stream)
{
    (void)ctx;
    SB_TRY(sb_embedding_check(p, false));
    SB_TRY(check_aligned("embedding_forward", {{"table", p->table}, {"out", p->out}}));
    const int64_t bytes = (int64_t)p->d * sb_dtype_bytes(p->dtype);
    if (bytes % 16 == 0)
        return launch_forward<uint4>(p, bytes / 16, (cudaStream_t)stream);
    return bytes / p->d == 4 ? launch_forward<unsigned>(p, p->d, (cudaStream_t)stream)
                             : launch_forward<unsigned short>(p, p->d, (cudaStream_t)stream);
}

extern "C" size_t sb_cuda_embedding_workspace(sb_context *ctx, const sb_embedding *p)
{
    (void)ctx;
    return p->rows < 1 || p->vocab < 1 ? 0 : token_sort_at(NULL, p->rows, p->vocab).bytes;
}

extern "C" sb_status sb_cuda_embedding_backward(sb_context *ctx, const sb_embedding *p, void *stream)
{
    static const char op[] = "embedding_backward";
    SB_TRY(sb_embedding_check(p, true));
    SB_TRY(sb_train_workspace_check(op, p->workspace, p->workspace_bytes, sb_cuda_embedding_workspace(ctx, p)));
    SB_TRY(check_aligned(op, {{"d_out", p->d_out}, {"d_table", p->d_table}, {"the workspace", p->workspace}}));
    const token_sort s = token_sort_at(p->workspace, p->rows, p->vocab, p->slice ? p->first_id : 0);
    return with_element_type(p->dtype, [&](auto in) {
        return with_element_type(p->dtype_grad, [&](auto out) {
            using T = decltype(in);
            using G = decltype(out);
            constexpr int N = vector16<G>::N; /* whole stores: most of the traffic is writing */
            const auto launch = p->accumulate
                                    ? p->d % N == 0 ? launch_backward<true, T, G, N> : launch_backward<true, T, G, 1>
                                : p->d % N == 0 ? launch_backward<false, T, G, N>
                                                : launch_backward<false, T, G, 1>;
            return launch(ctx, p, s, (cudaStream_t)stream);
        });
    });
}
