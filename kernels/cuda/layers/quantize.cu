/* SPDX-License-Identifier: MIT */
/* Largest magnitudes, and casts to float8 with the transposed copy in one pass.
 *
 * Bound: bytes. A block of threads casts a tile of 128 x 128: it reads x once, keeps it in registers as it is stored, and writes
 * whole lines of 128 bytes of both copies. A thread has a square of 8 x 8, so that the 8 bytes of a row and the 8 of a
 * column are both its own; the transposed copy passes through shared memory, whose units of 8 bytes are swizzled. Scales of blocks
 * are found in the tile: along rows by shuffles among 16 lanes, down columns by maxima in shared memory. Elements outside of the
 * matrix count as zeros and are not written. Sources of the recipe: kernels/float8.h. */
#include <cuda_fp8.h>

#include "kernels/cuda/primitives/vector.cuh"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/train.h"
#include "kernels/shared/float8.h"
#include "kernels/shared/train_check.h"

namespace
{

constexpr int THREADS = 256, TILE = SB_FLOAT8_BLOCK, SQUARE = 8;
constexpr int LANES = TILE / SQUARE; /* of a warp, along a row of the tile */
constexpr int MAX_GRID_Y = 65535;

/* A row of a thread's square as it lies in memory. */
template <typename T>
struct alignas(16) eight {
    static constexpr int WORDS = SQUARE * (int)sizeof(T) / 4;
    unsigned w[WORDS];

    /* `there` of the elements exist; the others are zero. */
    __device__ __forceinline__ void load(const T *from, int there, bool whole)
    {
        if (whole && there >= SQUARE) {
#pragma unroll
            for (int i = 0; i < WORDS; i += 4)
                *reinterpret_cast<uint4 *>(w + i) = *reinterpret_cast<const uint4 *>(from + i * 4 / (int)sizeof(T));
            return;
        }
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            unsigned word = 0;
#pragma unroll
            for (int j = 0; j < 4 / (int)sizeof(T); j++) {
                const int at = i * (4 / (int)sizeof(T)) + j;
                if (at < there)
                    word |= bits(from + at) << (16 * j);
            }
            w[i] = word;
        }
    }
    static __device__ __forceinline__ unsigned bits(const T *from)
    {
        if constexpr (sizeof(T) == 2)
            return *reinterpret_cast<const unsigned short *>(from);
        else
            return *reinterpret_cast<const unsigned *>(from);
    }
    __device__ __forceinline__ float at(int i) const
    {
        float x[word<T>::N];
        word<T>::unpack(w[i / word<T>::N], x);
        return x[i % word<T>::N];
    }
};

__device__ __forceinline__ unsigned magnitude(float x)
{
    return sb_float8_magnitude(__float_as_uint(x));
}

/* ---- largest magnitudes ---- */

constexpr int AMAX_ROWS = 64, AMAX_WARPS = THREADS / 32, AMAX_COLUMNS = 32 * SQUARE;

template <typename T>
__global__ void __launch_bounds__(THREADS) amax_kernel(sb_amax p, bool whole)
{
    __shared__ unsigned down[AMAX_COLUMNS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int column = blockIdx.x * AMAX_COLUMNS + lane * SQUARE, there = p.columns - column;
    for (int i = threadIdx.x; i < AMAX_COLUMNS; i += THREADS)
        down[i] = 0;
    __syncthreads();
    unsigned mine[SQUARE] = {0}, all = 0;
#pragma unroll 4
    for (int i = 0; i < AMAX_ROWS / AMAX_WARPS; i++) {
        const int row = blockIdx.y * AMAX_ROWS + i * AMAX_WARPS + warp;
        if (row >= p.rows)
            break;
        eight<T> x;
        x.load((const T *)p.x + (int64_t)row * p.ld + column, there, whole);
        unsigned along = 0;
#pragma unroll
        for (int j = 0; j < SQUARE; j++) {
            const unsigned bits = magnitude(x.at(j));
            mine[j] = max(mine[j], bits);
            along = max(along, bits);
        }
        if (p.of_rows) {
            along = __reduce_max_sync(0xffffffffu, along);
            if (lane == 0)
                atomicMax(p.of_rows + row, along);
        }
        all = max(all, along);
    }
    all = __reduce_max_sync(0xffffffffu, all);
    if (p.of_all && lane == 0)
        atomicMax(p.of_all, all);
    if (!p.of_columns)
        return;
#pragma unroll
    for (int j = 0; j < SQUARE; j++)
        atomicMax(&down[lane * SQUARE + j], mine[j]);
    __syncthreads();
    for (int i = threadIdx.x; i < AMAX_COLUMNS; i += THREADS)
        if (blockIdx.x * AMAX_COLUMNS + i < p.columns)
            atomicMax(p.of_columns + blockIdx.x * AMAX_COLUMNS + i, down[i]);
}

/* ---- casts ---- */

/* Codes of two numbers, the first in the low byte. What is not finite becomes NaN, where the conversion alone would make the
 * largest value of infinity. */
template <sb_dtype FORMAT>
__device__ __forceinline__ unsigned codes_of(float x, float y, float factor)
{
    const float2 scaled =
        make_float2(__fmaf_rn(x, 0.0f, __fmul_rn(x, factor)), __fmaf_rn(y, 0.0f, __fmul_rn(y, factor)));
    return __nv_cvt_float2_to_fp8x2(scaled, __NV_SATFINITE, FORMAT == SB_E4M3 ? __NV_E4M3 : __NV_E5M2);
}

__device__ __forceinline__ void store_scale(float *scales, int64_t at, unsigned bits)
{
    scales[at] = __uint_as_float(bits);
}

/* What a thread counts of the codes that it wrote. */
template <sb_dtype FORMAT>
__device__ __forceinline__ void count(float x, float factor, unsigned &cut, unsigned &zeros)
{
    const float scaled = fabsf(__fmul_rn(x, factor));
    const bool finite = magnitude(x) < 0x7f800000u && scaled == scaled;
    cut += finite && scaled > (FORMAT == SB_E4M3 ? 448.0f : 57344.0f);
    /* Half of the smallest subnormal goes to the even code, zero. */
    zeros += finite && x != 0.0f && scaled <= (FORMAT == SB_E4M3 ? 0x1p-10f : 0x1p-17f);
}

struct shared_tile {
    uint2 transposed[TILE * LANES]; /* unit (column, rows / 8) at column * LANES + (rows / 8 ^ column / 8) */
    unsigned down[TILE];            /* largest of each column; of the tile in the first for squares */
};

__device__ __forceinline__ void store_eight(unsigned char *to, uint2 codes, int there, bool whole)
{
    if (whole && there >= SQUARE) {
        *reinterpret_cast<uint2 *>(to) = codes;
        return;
    }
#pragma unroll
    for (int i = 0; i < SQUARE; i++)
        if (i < there)
            to[i] = (unsigned char)((i < 4 ? codes.x >> (8 * i) : codes.y >> (8 * (i - 4))) & 0xff);
}

/* A thread's square in the tile and in the matrix. */
struct place {
    int along, unit;   /* its column and row of squares in the tile */
    int row, column;   /* its first element */
    int rows, columns; /* how many of its 8 x 8 elements exist */
};

/* One scale for all, or one for each row: from words that are there. */
template <sb_dtype FORMAT>
__device__ __forceinline__ void scales_given(const sb_quantize &p, const place &at, unsigned (&of_row)[SQUARE],
                                             unsigned (&of_column)[SQUARE])
{
    const bool rows = p.scaling == SB_SCALE_ROW;
    const unsigned one = rows ? 0x3f800000u : sb_float8_scale_bits(p.amax[0], FORMAT);
#pragma unroll
    for (int i = 0; i < SQUARE; i++) {
        of_row[i] = rows && p.y && i < at.rows ? sb_float8_scale_bits(p.amax[at.row + i], FORMAT) : one;
        of_column[i] = rows && p.y_t && i < at.columns ? sb_float8_scale_bits(p.amax_t[at.column + i], FORMAT) : one;
        if (p.y && blockIdx.x == 0 && at.along == 0 && i < at.rows && (rows || at.row + i == 0))
            store_scale(p.scales, at.row + i, of_row[i]);
        if (p.y_t && blockIdx.y == 0 && at.unit == 0 && i < at.columns && (rows || at.column + i == 0))
            store_scale(p.scales_t, at.column + i, of_column[i]);
    }
}

/* The largest magnitudes of this thread's rows in the tile, and of its own part of its columns. */
template <typename T>
__device__ __forceinline__ void largest_of(const eight<T> (&x)[SQUARE], unsigned (&of_row)[SQUARE],
                                           unsigned (&down)[SQUARE])
{
#pragma unroll
    for (int i = 0; i < SQUARE; i++)
        down[i] = 0;
#pragma unroll
    for (int i = 0; i < SQUARE; i++) {
        unsigned largest = 0;
#pragma unroll
        for (int j = 0; j < SQUARE; j++) {
            const unsigned bits = magnitude(x[i].at(j));
            down[j] = max(down[j], bits);
            largest = max(largest, bits);
        }
#pragma unroll
        for (int d = LANES / 2; d > 0; d /= 2)
            largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, d));
        of_row[i] = largest;
    }
}

/* The tile is one block: its scale, and zeros where the last block of a row of scales ends short of a whole unit. */
__device__ __forceinline__ void store_square(float *scales, int row, int column, int columns, int ld, unsigned scale)
{
    store_scale(scales, (int64_t)row * ld + column, scale);
    for (int j = column + 1; column + 1 == columns && j < ld; j++)
        scales[(int64_t)row * ld + j] = 0;
}

template <typename T, sb_dtype FORMAT>
__device__ __forceinline__ void scales_of_square(const sb_quantize &p, const place &at, const eight<T> (&x)[SQUARE],
                                                 shared_tile &tile, unsigned (&of_row)[SQUARE],
                                                 unsigned (&of_column)[SQUARE])
{
    unsigned largest = 0;
    largest_of(x, of_row, of_column);
#pragma unroll
    for (int i = 0; i < SQUARE; i++)
        largest = max(largest, of_row[i]);
    if (at.along == 0)
        atomicMax(&tile.down[0], largest);
    __syncthreads();
    const unsigned scale = sb_float8_scale_bits(tile.down[0], FORMAT);
#pragma unroll
    for (int i = 0; i < SQUARE; i++)
        of_row[i] = of_column[i] = scale;
    if (p.y && threadIdx.x == 0)
        store_square(p.scales, blockIdx.y, blockIdx.x, gridDim.x, sb_float8_square_ld(p.columns), scale);
    if (p.y_t && threadIdx.x == 0)
        store_square(p.scales_t, blockIdx.x, blockIdx.y, gridDim.y, sb_float8_square_ld(p.rows), scale);
}

/* Each row of the tile is a block of y, each column one of y_t. */
template <typename T, sb_dtype FORMAT>
__device__ __forceinline__ void scales_of_lines(const sb_quantize &p, const place &at, const eight<T> (&x)[SQUARE],
                                                shared_tile &tile, unsigned (&of_row)[SQUARE],
                                                unsigned (&of_column)[SQUARE])
{
    unsigned down[SQUARE];
    largest_of(x, of_row, down);
#pragma unroll
    for (int j = 0; j < SQUARE; j++) {
        down[j] = max(down[j], __shfl_xor_sync(0xffffffffu, down[j], LANES));
        if (at.unit % 2 == 0)
            atomicMax(&tile.down[at.along * SQUARE + j], down[j]);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < SQUARE; i++) {
        of_row[i] = sb_float8_scale_bits(of_row[i], FORMAT);
        of_column[i] = sb_float8_scale_bits(tile.down[at.along * SQUARE + i], FORMAT);
        if (p.y && at.along == 0 && i < at.rows)
            store_scale(p.scales, (int64_t)blockIdx.x * p.rows + at.row + i, of_row[i]);
        if (p.y_t && at.unit == 0 && i < at.columns)
            store_scale(p.scales_t, (int64_t)blockIdx.y * p.columns + at.column + i, of_column[i]);
    }
}

/* `whole_*`: rows of x, y and y_t begin at multiples of 16 and 8 bytes. */
template <typename T, sb_dtype FORMAT>
__global__ void __launch_bounds__(THREADS, 2) quantize_kernel(sb_quantize p, bool whole_x, bool whole_y, bool whole_t)
{
    __shared__ shared_tile tile;
    place at = {(int)threadIdx.x % LANES, (int)threadIdx.x / LANES};
    at.row = blockIdx.y * TILE + at.unit * SQUARE, at.column = blockIdx.x * TILE + at.along * SQUARE;
    at.rows = min(max(p.rows - at.row, 0), SQUARE), at.columns = min(max(p.columns - at.column, 0), SQUARE);
    eight<T> x[SQUARE];
#pragma unroll
    for (int i = 0; i < SQUARE; i++)
        x[i].load((const T *)p.x + (int64_t)(at.row + i) * p.ld + at.column, i < at.rows ? at.columns : 0, whole_x);

    unsigned of_row[SQUARE], of_column[SQUARE]; /* scales of this thread's rows of y, and of y_t */
    if (p.scaling == SB_SCALE_TENSOR || p.scaling == SB_SCALE_ROW) {
        scales_given<FORMAT>(p, at, of_row, of_column);
    } else {
        for (int i = threadIdx.x; i < TILE; i += THREADS)
            tile.down[i] = 0;
        __syncthreads();
        if (p.scaling == SB_SCALE_128X128)
            scales_of_square<T, FORMAT>(p, at, x, tile, of_row, of_column);
        else
            scales_of_lines<T, FORMAT>(p, at, x, tile, of_row, of_column);
    }

    unsigned cut = 0, zeros = 0;
#pragma unroll
    for (int i = 0; p.y && i < SQUARE; i++) {
        const float f = __uint_as_float(sb_float8_inverse_bits(of_row[i]));
        uint2 codes;
        codes.x = codes_of<FORMAT>(x[i].at(0), x[i].at(1), f) | codes_of<FORMAT>(x[i].at(2), x[i].at(3), f) << 16;
        codes.y = codes_of<FORMAT>(x[i].at(4), x[i].at(5), f) | codes_of<FORMAT>(x[i].at(6), x[i].at(7), f) << 16;
        if (i < at.rows)
            store_eight((unsigned char *)p.y + (int64_t)(at.row + i) * p.ld_y + at.column, codes, at.columns, whole_y);
        if (p.counts)
#pragma unroll
            for (int j = 0; j < SQUARE; j++)
                count<FORMAT>(x[i].at(j), f, cut, zeros);
    }
    if (p.y_t) {
#pragma unroll
        for (int j = 0; j < SQUARE; j++) {
            const float f = __uint_as_float(sb_float8_inverse_bits(of_column[j]));
            uint2 codes;
            codes.x = codes_of<FORMAT>(x[0].at(j), x[1].at(j), f) | codes_of<FORMAT>(x[2].at(j), x[3].at(j), f) << 16;
            codes.y = codes_of<FORMAT>(x[4].at(j), x[5].at(j), f) | codes_of<FORMAT>(x[6].at(j), x[7].at(j), f) << 16;
            tile.transposed[(at.along * SQUARE + j) * LANES + (at.unit ^ at.along)] = codes;
            if (p.counts && !p.y)
#pragma unroll
                for (int i = 0; i < SQUARE; i++)
                    count<FORMAT>(x[i].at(j), f, cut, zeros);
        }
        __syncthreads();
        /* Half a warp writes the 128 bytes of one column. */
#pragma unroll
        for (int i = 0; i < TILE / (THREADS / LANES); i++) {
            const int c = i * (THREADS / LANES) + at.unit, to = blockIdx.x * TILE + c;
            const int from_row = blockIdx.y * TILE + at.along * SQUARE;
            if (to < p.columns)
                store_eight((unsigned char *)p.y_t + (int64_t)to * p.ld_t + from_row,
                            tile.transposed[c * LANES + (at.along ^ c / SQUARE)],
                            min(max(p.rows - from_row, 0), SQUARE), whole_t);
        }
    }
    if (p.counts) {
        cut = __reduce_add_sync(0xffffffffu, cut);
        zeros = __reduce_add_sync(0xffffffffu, zeros);
        if (threadIdx.x % 32 == 0 && cut > 0)
            atomicAdd(p.counts, cut);
        if (threadIdx.x % 32 == 0 && zeros > 0)
            atomicAdd(p.counts + 1, zeros);
    }
}

/* Do rows begin at multiples of `bytes`? */
bool aligned(const void *p, int64_t ld_bytes, int bytes)
{
    return (uintptr_t)p % bytes == 0 && ld_bytes % bytes == 0;
}

sb_status too_tall(const char *op, int rows, int tile)
{
    return rows > (int64_t)tile * MAX_GRID_Y
               ? sb_error(SB_UNSUPPORTED, "%s: %d rows are more than the %d that one launch takes", op, rows,
                          tile * MAX_GRID_Y)
               : SB_OK;
}

sb_status clear(uint32_t *words, int n, cudaStream_t stream)
{
    return words ? sb_cuda_status(cudaMemsetAsync(words, 0, (size_t)n * sizeof *words, stream), "amax") : SB_OK;
}

} // namespace

extern "C" sb_status sb_cuda_amax(sb_context *ctx, const sb_amax *p, void *stream)
{
    (void)ctx;
    sb_status s = sb_amax_check(p);
    if (s == SB_OK)
        s = too_tall("amax", p->rows, AMAX_ROWS);
    if (s == SB_OK)
        s = clear(p->of_all, 1, (cudaStream_t)stream);
    if (s == SB_OK)
        s = clear(p->of_rows, p->rows, (cudaStream_t)stream);
    if (s == SB_OK)
        s = clear(p->of_columns, p->columns, (cudaStream_t)stream);
    if (s != SB_OK)
        return s;
    const dim3 grid((p->columns + AMAX_COLUMNS - 1) / AMAX_COLUMNS, (p->rows + AMAX_ROWS - 1) / AMAX_ROWS);
    const bool whole = aligned(p->x, (int64_t)p->ld * sb_dtype_bytes(p->dtype), 16);
    return with_element_type(p->dtype, [&](auto element) {
        amax_kernel<decltype(element)><<<grid, THREADS, 0, (cudaStream_t)stream>>>(*p, whole);
        return sb_cuda_launched("amax kernel");
    });
}

extern "C" sb_status sb_cuda_quantize(sb_context *ctx, const sb_quantize *p, void *stream)
{
    (void)ctx;
    sb_status s = sb_quantize_check(p);
    if (s == SB_OK && p->scaling == SB_SCALE_1X32)
        s = sb_error(SB_UNSUPPORTED,
                     "quantize: there is no CUDA kernel for blocks of 1x32 yet; the CPU backend has them");
    if (s == SB_OK)
        s = too_tall("quantize", p->rows, TILE);
    if (s != SB_OK)
        return s;
    const dim3 grid((p->columns + TILE - 1) / TILE, (p->rows + TILE - 1) / TILE);
    const bool whole_x = aligned(p->x, (int64_t)p->ld * sb_dtype_bytes(p->dtype), 16);
    const bool whole_y = aligned(p->y, p->ld_y, SQUARE), whole_t = aligned(p->y_t, p->ld_t, SQUARE);
    return with_element_type(p->dtype, [&](auto element) {
        using T = decltype(element);
        if (p->format == SB_E4M3)
            quantize_kernel<T, SB_E4M3><<<grid, THREADS, 0, (cudaStream_t)stream>>>(*p, whole_x, whole_y, whole_t);
        else
            quantize_kernel<T, SB_E5M2><<<grid, THREADS, 0, (cudaStream_t)stream>>>(*p, whole_x, whole_y, whole_t);
        return sb_cuda_launched("quantize kernel");
    });
}
