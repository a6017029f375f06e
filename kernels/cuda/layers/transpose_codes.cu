/* SPDX-License-Identifier: MIT */
/* Codes of float8 transposed. Bound: bytes, of which each is read and written once. A block of threads has a tile of 128 x 128, a
 * thread a square of 8 x 8, which it transposes in registers; whole lines of 128 bytes are read and, by way of shared memory,
 * written. */
#include "kernels/cuda/primitives/float8.cuh"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

namespace
{

constexpr int THREADS = 256, TILE = SB_FLOAT8_BLOCK, LANES = TILE / SQUARE;
constexpr int MAX_GRID_Y = 65535;

/* The tile's own scale, and zeros where its row of scales ends short of a whole unit. */
__device__ __forceinline__ void turn_scale(const sb_codes &p)
{
    const int ld = sb_float8_square_ld(p.columns), ld_t = sb_float8_square_ld(p.rows);
    if (p.scaling == SB_SCALE_TENSOR) {
        if (blockIdx.x == 0 && blockIdx.y == 0)
            p.scales_t[0] = p.scales[0];
        return;
    }
    p.scales_t[(int64_t)blockIdx.x * ld_t + blockIdx.y] = p.scales[(int64_t)blockIdx.y * ld + blockIdx.x];
    for (int i = gridDim.y; blockIdx.y + 1 == gridDim.y && i < ld_t; i++)
        p.scales_t[(int64_t)blockIdx.x * ld_t + i] = 0;
}

__global__ void __launch_bounds__(THREADS) transpose_codes_kernel(sb_codes p)
{
    __shared__ uint2 turned[TILE * LANES]; /* unit (column, rows / 8) at column * LANES + (rows / 8 ^ column / 8) */
    const int along = threadIdx.x % LANES, unit = threadIdx.x / LANES;
    const int row = blockIdx.y * TILE + unit * SQUARE, column = blockIdx.x * TILE + along * SQUARE;
    const unsigned char *x = (const unsigned char *)p.x;
    unsigned char *y = (unsigned char *)p.y_t;
    uint2 in[SQUARE];
#pragma unroll
    for (int i = 0; i < SQUARE; i++)
        in[i] = row < p.rows && column < p.columns
                    ? *reinterpret_cast<const uint2 *>(x + (int64_t)(row + i) * p.columns + column)
                    : make_uint2(0, 0);
    turn_square(in);
#pragma unroll
    for (int j = 0; j < SQUARE; j++)
        turned[(along * SQUARE + j) * LANES + (unit ^ along)] = in[j];
    if (threadIdx.x == 0)
        turn_scale(p);
    __syncthreads();
    /* Half a warp writes the 128 bytes of one column. */
#pragma unroll
    for (int i = 0; i < TILE / (THREADS / LANES); i++) {
        const int c = i * (THREADS / LANES) + unit, to = blockIdx.x * TILE + c;
        const int from_row = blockIdx.y * TILE + along * SQUARE;
        if (to < p.columns && from_row < p.rows)
            *reinterpret_cast<uint2 *>(y + (int64_t)to * p.rows + from_row) = turned[c * LANES + (along ^ c / SQUARE)];
    }
}

} // namespace

extern "C" sb_status sb_cuda_transpose_codes(sb_context *ctx, const sb_codes *p, void *stream)
{
    (void)ctx;
    SB_TRY(sb_codes_check(p));
    if (p->rows > (int64_t)TILE * MAX_GRID_Y)
        return sb_error(SB_UNSUPPORTED, "transpose_codes: %d rows are more than the %d that one launch takes", p->rows,
                        TILE * MAX_GRID_Y);
    if ((uintptr_t)p->x % SQUARE || (uintptr_t)p->y_t % SQUARE)
        return sb_error(SB_INVALID, "transpose_codes: x and y_t must be aligned to %d bytes", SQUARE);
    const dim3 grid((p->columns + TILE - 1) / TILE, (p->rows + TILE - 1) / TILE);
    transpose_codes_kernel<<<grid, THREADS, 0, (cudaStream_t)stream>>>(*p);
    return sb_cuda_launched("transpose_codes kernel");
}
