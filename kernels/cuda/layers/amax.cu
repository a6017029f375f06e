/* SPDX-License-Identifier: MIT */
/* Largest magnitudes of a matrix, of its rows and of its columns in one pass, and the history that delayed scales are made of.
 * Bound: bytes. A warp reads runs of 256 elements of a row; columns are gathered in shared memory. */
#include "kernels/cuda/primitives/float8.cuh"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

namespace
{

constexpr int THREADS = 256, ROWS = 64, WARPS = THREADS / 32, COLUMNS = 32 * SQUARE, MAX_GRID_Y = 65535;

template <typename T, sb_float8_source SOURCE>
__global__ void __launch_bounds__(THREADS) amax_kernel(sb_amax p, bool whole)
{
    constexpr int PARTS = SOURCE == SB_FROM_SWIGLU_GRADIENT ? 2 : 1; /* of the matrix's columns: gate's, up's */
    __shared__ unsigned down[PARTS][COLUMNS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, f = p.columns / PARTS;
    const int column = blockIdx.x * COLUMNS + lane * SQUARE, there = f - column;
    for (int i = threadIdx.x; i < PARTS * COLUMNS; i += THREADS)
        down[i / COLUMNS][i % COLUMNS] = 0;
    __syncthreads();
    constexpr int NEIGHBOURS = sizeof(T) == 2 ? 2 : 1; /* whose maxima are taken at once */
    unsigned mine[PARTS][SQUARE / NEIGHBOURS] = {}, all = 0;
#pragma unroll 4
    for (int i = 0; i < ROWS / WARPS; i++) {
        const int row = blockIdx.y * ROWS + i * WARPS + warp;
        if (row >= p.rows)
            break;
        eight_inputs<SOURCE, T> in;
        eight<T> x[2];
        in.load((const T *)p.x + (int64_t)row * p.ld + column,
                PARTS == 2 ? (const T *)p.from.dh + (int64_t)row * f + column : (const T *)nullptr, f, there, whole);
        const shared_place<SOURCE> shared(p.from, row, column);
        in.load_shared(p.from, shared, there, whole);
        in.make(shared, x[0], x[1]);
        unsigned along = 0;
#pragma unroll
        for (int k = 0; k < PARTS; k++) {
#pragma unroll
            for (int j = 0; p.of_columns && j < SQUARE / NEIGHBOURS; j++)
                if constexpr (NEIGHBOURS == 2)
                    mine[k][j] = __vmaxu2(mine[k][j], magnitudes(x[k].w[j]));
                else
                    mine[k][j] = max(mine[k][j], magnitude(x[k].at(j)));
            along = max(along, largest_in(x[k]));
        }
        if (p.of_rows)
            raise(p.of_rows + row, along);
        all = max(all, along);
    }
    if (p.of_all)
        raise(p.of_all, all);
    if (!p.of_columns)
        return;
#pragma unroll
    for (int k = 0; k < PARTS; k++)
#pragma unroll
        for (int j = 0; j < SQUARE; j++)
            atomicMax(&down[k][lane * SQUARE + j],
                      NEIGHBOURS == 2 ? wide_magnitude<T>(mine[k][j / NEIGHBOURS], j % 2) : mine[k][j / NEIGHBOURS]);
    __syncthreads();
    for (int i = threadIdx.x; i < PARTS * COLUMNS; i += THREADS) {
        const int at = blockIdx.x * COLUMNS + i % COLUMNS;
        if (at < f)
            atomicMax(p.of_columns + i / COLUMNS * f + at, down[i / COLUMNS][i % COLUMNS]);
    }
}

/* A thread has a word. */
__global__ void __launch_bounds__(THREADS) history_kernel(sb_float8_history p)
{
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (i >= p.n)
        return;
    const unsigned now = p.largest[i];
    const bool enters = now > 0 && now < 0x7f800000u;
    unsigned most = enters ? now : 0, moves = now;
    for (int j = 0; j < p.window; j++) {
        unsigned *at = p.history + (int64_t)j * p.n + i, old = *at;
        if (enters)
            *at = moves, moves = old;
        if (!enters || j + 1 < p.window)
            most = max(most, old);
    }
    p.used[i] = most;
    p.largest[i] = 0;
}

sb_status clear(uint32_t *words, int n, cudaStream_t stream)
{
    return words ? sb_cuda_status(cudaMemsetAsync(words, 0, (size_t)n * sizeof *words, stream), "amax") : SB_OK;
}

template <typename T, sb_float8_source SOURCE>
sb_status launch(const sb_amax *p, cudaStream_t stream)
{
    const int f = SOURCE == SB_FROM_SWIGLU_GRADIENT ? p->columns / 2 : p->columns, bytes = 16;
    const dim3 grid((f + COLUMNS - 1) / COLUMNS, (p->rows + ROWS - 1) / ROWS);
    const bool whole = (uintptr_t)p->x % bytes == 0 && p->ld * sizeof(T) % bytes == 0 &&
                       (SOURCE == SB_FROM_X || ((uintptr_t)p->from.dh % bytes == 0 && f * sizeof(T) % bytes == 0));
    amax_kernel<T, SOURCE><<<grid, THREADS, 0, stream>>>(*p, whole);
    return sb_cuda_launched("amax kernel");
}

} // namespace

extern "C" sb_status sb_cuda_amax(sb_context *ctx, const sb_amax *p, void *stream)
{
    (void)ctx;
    SB_TRY(sb_amax_check(p));
    if (p->rows > (int64_t)ROWS * MAX_GRID_Y)
        return sb_error(SB_UNSUPPORTED, "amax: %d rows are more than the %d that one launch takes", p->rows,
                        ROWS * MAX_GRID_Y);
    SB_TRY(clear(p->of_all, 1, (cudaStream_t)stream));
    SB_TRY(clear(p->of_rows, p->rows, (cudaStream_t)stream));
    SB_TRY(clear(p->of_columns, p->columns, (cudaStream_t)stream));
    return with_source("amax", p->dtype, p->from, [&](auto element, auto source) {
        return launch<decltype(element), source>(p, (cudaStream_t)stream);
    });
}

extern "C" sb_status sb_cuda_float8_history(sb_context *ctx, const sb_float8_history *p, void *stream)
{
    (void)ctx;
    SB_TRY(sb_float8_history_check(p));
    history_kernel<<<(p->n + THREADS - 1) / THREADS, THREADS, 0, (cudaStream_t)stream>>>(*p);
    return sb_cuda_launched("float8 history kernel");
}
