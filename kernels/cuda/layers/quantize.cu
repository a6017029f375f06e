/* SPDX-License-Identifier: MIT */
/* Casts to float8, with the transposed copy in one pass.
 *
 * Bound: bytes. A block of threads casts a tile of 128 x 128: it reads x once, keeps it in registers as it is stored, and writes
 * whole lines of 128 bytes of both copies. A thread has a square of 8 x 8, so that the 8 bytes of a row and the 8 of a
 * column are both its own; the transposed copy passes through shared memory, whose units of 8 bytes are swizzled. Scales of blocks
 * are found in the tile: along rows by shuffles among 16 lanes, down columns by maxima in shared memory. Elements outside of the
 * matrix count as zeros and are not written. Where SwiGLU makes the matrix, its inputs are what is read, and a tile of gate's
 * gradients is followed by that of up's. Sources of the recipe: kernels/float8.h. */
#include <cuda_fp8.h>

#include "kernels/cuda/primitives/early.cuh"
#include "kernels/cuda/primitives/float8.cuh"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

namespace
{

constexpr int THREADS = 256, TILE = SB_FLOAT8_BLOCK;
constexpr int LANES = TILE / SQUARE; /* of a warp, along a row of the tile */
constexpr int MAX_GRID_Y = 65535;
/* Blocks that a multiprocessor is to hold where elements of 16 bits are as they lie. Before Hopper codes take many instructions, and
 * with them registers. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int BLOCKS_OF_16_BITS = 2;
#else
constexpr int BLOCKS_OF_16_BITS = 3;
#endif

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

/* Casts of blocks do not: a step of fp8-block was 4 % slower on two H100s when they did, and no other recipe was. Perhaps gradients
 * of weights, on another stream, cannot run where blocks of threads wait behind a product. */
__host__ __device__ __forceinline__ bool starts_early(sb_scaling scaling)
{
    return scaling == SB_SCALE_TENSOR || scaling == SB_SCALE_ROW;
}

struct shared_tile {
    uint2 transposed[TILE * LANES]; /* unit (column, rows / 8) at column * LANES + (rows / 8 ^ column / 8) */
    unsigned down[TILE];            /* largest of each column; of the tile in the first for squares */
    alignas(8) unsigned char exponents[THREADS]; /* of scales that are given: of the rows of y, then of y_t */
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
    int along, unit;             /* its column and row of squares in the tile */
    int first_row, first_column; /* of the tile, */
    int end_column;              /* whose columns end there */
    int row, column;             /* its first element */
    int rows, columns;           /* how many of its 8 x 8 elements exist */
};

/* In the tile of this block whose columns begin and end there. */
__device__ __forceinline__ place place_in(int rows, int first_column, int end_column)
{
    place at = {(int)threadIdx.x % LANES, (int)threadIdx.x / LANES, (int)blockIdx.y * TILE, first_column, end_column};
    at.row = at.first_row + at.unit * SQUARE, at.column = first_column + at.along * SQUARE;
    at.rows = min(max(rows - at.row, 0), SQUARE), at.columns = min(max(end_column - at.column, 0), SQUARE);
    return at;
}

/* Scales of eight rows or columns, as exponents, for registers are short: 255 is NaN. */
struct powers {
    unsigned exponents[SQUARE / 4];

    __device__ __forceinline__ void set(int i, unsigned scale_bits)
    {
        const unsigned at = scale_bits >> 23 << 8 * (i % 4);
        exponents[i / 4] = i % 4 == 0 ? at : exponents[i / 4] | at;
    }
    __device__ __forceinline__ void load(const unsigned char *from)
    {
        exponents[0] = reinterpret_cast<const unsigned *>(from)[0];
        exponents[1] = reinterpret_cast<const unsigned *>(from)[1];
    }
    __device__ __forceinline__ unsigned scale_bits(int i) const
    {
        const unsigned exponent = exponents[i / 4] >> 8 * (i % 4) & 0xffu;
        return exponent == 0xffu ? 0x7fffffffu : exponent << 23;
    }
    __device__ __forceinline__ float factor(int i) const
    {
        return __uint_as_float(sb_float8_inverse_bits(scale_bits(i)));
    }
};

/* Where one scale serves all, or each row has one: the word of which this thread makes a scale of the tile, that of row threadIdx.x of y
 * or of y_t. It is read before the elements, so that one wait is enough. */
__device__ __forceinline__ unsigned word_given(const sb_quantize &p, const place &at)
{
    const bool transposed = threadIdx.x >= TILE;
    const int i = (int)threadIdx.x % TILE + (transposed ? at.first_column : at.first_row);
    if (p.scaling == SB_SCALE_TENSOR)
        return p.amax[0];
    if (p.scaling != SB_SCALE_ROW || i >= (transposed ? at.end_column : p.rows))
        return 0;
    return transposed ? (p.y_t ? p.amax_t[i] : 0) : p.y ? p.amax[i] : 0;
}

template <sb_dtype FORMAT>
__device__ __forceinline__ void scales_given(const sb_quantize &p, const place &at, unsigned word, shared_tile &tile,
                                             powers &of_row, powers &of_column)
{
    const unsigned scale = sb_float8_scale_bits(word, FORMAT);
    const bool rows = p.scaling == SB_SCALE_ROW, transposed = threadIdx.x >= TILE;
    const int i = (int)threadIdx.x % TILE + (transposed ? at.first_column : at.first_row);
    tile.exponents[threadIdx.x] = (unsigned char)(scale >> 23);
    if (transposed) {
        if (p.y_t && at.first_row == 0 && i < at.end_column && (rows || i == 0))
            store_scale(p.scales_t, i, scale);
    } else if (p.y && at.first_column == 0 && i < p.rows && (rows || i == 0)) {
        store_scale(p.scales, i, scale);
    }
    __syncthreads();
    of_row.load(tile.exponents + at.unit * SQUARE);
    of_column.load(tile.exponents + TILE + at.along * SQUARE);
}

/* The largest magnitudes of this thread's rows in the tile, and of its warp's part of its columns. */
template <typename T>
__device__ __forceinline__ void largest_of(const eight<T> (&x)[SQUARE], unsigned (&of_row)[SQUARE],
                                           unsigned (&down)[SQUARE])
{
    constexpr bool PAIRS = sizeof(T) == 2;
    constexpr int N = PAIRS ? SQUARE / 2 : SQUARE;
    unsigned rows[N] = {}, columns[N] = {};
#pragma unroll
    for (int i = 0; i < SQUARE; i++)
        if constexpr (PAIRS) {
            unsigned along = 0;
#pragma unroll
            for (int j = 0; j < N; j++) {
                const unsigned pair = magnitudes(x[i].w[j]);
                columns[j] = __vmaxu2(columns[j], pair);
                along = __vmaxu2(along, pair);
            }
            rows[i / 2] |= max(along & 0xffffu, along >> 16) << 16 * (i % 2);
        } else {
#pragma unroll
            for (int j = 0; j < N; j++) {
                const unsigned bits = magnitude(x[i].at(j));
                columns[j] = max(columns[j], bits);
                rows[i] = max(rows[i], bits);
            }
        }
#pragma unroll
    for (int i = 0; i < N; i++) {
#pragma unroll
        for (int d = LANES / 2; d > 0; d /= 2) {
            const unsigned other = __shfl_xor_sync(0xffffffffu, rows[i], d);
            rows[i] = PAIRS ? __vmaxu2(rows[i], other) : max(rows[i], other);
        }
        const unsigned other = __shfl_xor_sync(0xffffffffu, columns[i], LANES);
        columns[i] = PAIRS ? __vmaxu2(columns[i], other) : max(columns[i], other);
    }
#pragma unroll
    for (int i = 0; i < SQUARE; i++)
        if constexpr (PAIRS) {
            of_row[i] = wide_magnitude<T>(rows[i / 2], i % 2);
            down[i] = wide_magnitude<T>(columns[i / 2], i % 2);
        } else {
            of_row[i] = rows[i], down[i] = columns[i];
        }
}

/* The tile is one block: its scale, and zeros where the last block of a row of scales ends short of a whole unit. */
__device__ __forceinline__ void store_square(float *scales, int row, int column, int columns, int ld, unsigned scale)
{
    store_scale(scales, (int64_t)row * ld + column, scale);
    for (int j = column + 1; column + 1 == columns && j < ld; j++)
        scales[(int64_t)row * ld + j] = 0;
}

/* Scales of blocks: each row of the tile is one of y, or the tile is; each column is one of y_t, or the tile. */
template <typename T, sb_dtype FORMAT>
__device__ __forceinline__ void scales_found(const sb_quantize &p, const place &at, const eight<T> (&x)[SQUARE],
                                             shared_tile &tile, powers &of_row, powers &of_column)
{
    const bool lines = p.scaling == SB_SCALE_1X128, lines_t = p.scaling_t == SB_SCALE_1X128;
    unsigned along[SQUARE], down[SQUARE], largest = 0;
    largest_of(x, along, down);
#pragma unroll
    for (int i = 0; i < SQUARE; i++) {
        largest = max(largest, along[i]);
        of_row.set(i, sb_float8_scale_bits(along[i], FORMAT));
        if (lines_t && at.unit % 2 == 0)
            atomicMax(&tile.down[at.along * SQUARE + i], down[i]);
        if (lines && p.y && at.along == 0 && i < at.rows)
            store_scale(p.scales, (int64_t)(at.first_column / TILE) * p.rows + at.row + i, of_row.scale_bits(i));
    }
    if (!lines_t && at.along == 0)
        atomicMax(&tile.down[0], largest);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < SQUARE; i++) {
        of_column.set(i, sb_float8_scale_bits(tile.down[lines_t ? at.along * SQUARE + i : 0], FORMAT));
        if (lines_t && p.y_t && at.unit == 0 && i < at.columns)
            store_scale(p.scales_t, (int64_t)blockIdx.y * p.columns + at.column + i, of_column.scale_bits(i));
    }
    if (!lines)
        of_row = of_column;
    if (!lines && p.y && threadIdx.x == 0)
        store_square(p.scales, blockIdx.y, at.first_column / TILE, (p.columns + TILE - 1) / TILE,
                     sb_float8_square_ld(p.columns), of_row.scale_bits(0));
    if (!lines_t && p.y_t && threadIdx.x == 0)
        store_square(p.scales_t, at.first_column / TILE, blockIdx.y, gridDim.y, sb_float8_square_ld(p.rows),
                     of_column.scale_bits(0));
}

/* No copies in fp32 outlive this point: registers are short. */
template <typename T>
__device__ __forceinline__ void stay_packed(eight<T> (&x)[SQUARE], unsigned zero)
{
#pragma unroll
    for (int i = 0; i < SQUARE; i++)
        x[i].stay_packed(zero);
}

/* The codes of a tile whose elements the threads hold. `whole_*`: rows of y and y_t begin at multiples of 8 bytes. `word`: word_given. */
template <typename T, sb_dtype FORMAT>
__device__ __forceinline__ void cast_tile(const sb_quantize &p, const place &at, eight<T> (&x)[SQUARE], unsigned word,
                                          shared_tile &tile, bool whole_y, bool whole_t)
{
    const unsigned zero = (unsigned)p.rows >> 31;
    powers of_row, of_column; /* of this thread's rows of y, and of y_t */
    stay_packed(x, zero);
    if (p.scaling == SB_SCALE_TENSOR || p.scaling == SB_SCALE_ROW) {
        scales_given<FORMAT>(p, at, word, tile, of_row, of_column);
    } else {
        for (int i = threadIdx.x; i < TILE; i += THREADS)
            tile.down[i] = 0;
        __syncthreads();
        scales_found<T, FORMAT>(p, at, x, tile, of_row, of_column);
    }

    stay_packed(x, zero);
    unsigned cut = 0, zeros = 0;
#pragma unroll
    for (int i = 0; p.y && i < SQUARE; i++) {
        const float f = of_row.factor(i);
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
        stay_packed(x, zero);
#pragma unroll
        for (int j = 0; j < SQUARE; j++) {
            const float f = of_column.factor(j);
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
            const int c = i * (THREADS / LANES) + at.unit, to = at.first_column + c;
            const int from_row = at.first_row + at.along * SQUARE;
            if (to < at.end_column)
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
    if (p.largest) {
        unsigned largest = 0;
#pragma unroll
        for (int i = 0; i < SQUARE; i++)
            largest = max(largest, largest_in(x[i]));
        raise(p.largest, largest);
    }
}

template <typename T, sb_dtype FORMAT, sb_float8_source SOURCE>
__global__ void __launch_bounds__(THREADS, SOURCE == SB_FROM_X && sizeof(T) == 2 ? BLOCKS_OF_16_BITS : 2)
    quantize_kernel(sb_quantize p, bool whole_x, bool whole_y, bool whole_t)
{
    constexpr bool GRADIENT = SOURCE == SB_FROM_SWIGLU_GRADIENT;
    __shared__ shared_tile tile;
    if (starts_early(p.scaling))
        wait_if_early();
    const int f = GRADIENT ? p.columns / 2 : p.columns, first = (int)blockIdx.x * TILE;
    const place at = place_in(p.rows, first, f);
    const unsigned word = word_given(p, at);
    if (p.again && sb_float8_scale_bits(word, FORMAT) == sb_float8_scale_bits(p.amax_t[0], FORMAT))
        return;
    eight<T> x[SQUARE], up[GRADIENT ? SQUARE : 1];
#pragma unroll
    for (int i = 0; i < SQUARE; i++) {
        if (SOURCE != SB_FROM_SWIGLU && i == SQUARE / 2)
            asm volatile("" ::: "memory"); /* no more than half of the loads at once: registers are short */
        make_eight<SOURCE>(x[i], up[GRADIENT ? i : 0], (const T *)p.x + (int64_t)(at.row + i) * p.ld + at.column,
                           GRADIENT ? (const T *)p.dh + (int64_t)(at.row + i) * f + at.column : (const T *)nullptr, f,
                           i < at.rows ? at.columns : 0, whole_x);
    }
    cast_tile<T, FORMAT>(p, at, x, word, tile, whole_y, whole_t);
    if constexpr (GRADIENT) {
        const place behind = place_in(p.rows, f + first, 2 * f);
        const unsigned word_behind = word_given(p, behind);
        __syncthreads(); /* the tile in shared memory has been read */
        cast_tile<T, FORMAT>(p, behind, up, word_behind, tile, whole_y, whole_t);
    }
}

/* Do rows begin at multiples of `bytes`? */
bool aligned(const void *p, int64_t ld_bytes, int bytes)
{
    return (uintptr_t)p % bytes == 0 && ld_bytes % bytes == 0;
}

template <typename T, sb_float8_source SOURCE>
sb_status launch(const sb_context *ctx, const sb_quantize *p, cudaStream_t stream)
{
    constexpr bool MADE = SOURCE != SB_FROM_X, GRADIENT = SOURCE == SB_FROM_SWIGLU_GRADIENT;
    const int f = GRADIENT ? p->columns / 2 : p->columns;
    const dim3 grid((f + TILE - 1) / TILE, (p->rows + TILE - 1) / TILE);
    const bool whole_x =
        aligned(p->x, p->ld * (int64_t)sizeof(T), 16) && (!MADE || aligned(p->dh, f * (int64_t)sizeof(T), 16));
    const bool whole_y = aligned(p->y, p->ld_y, SQUARE) && (!GRADIENT || f % SQUARE == 0);
    const bool whole_t = aligned(p->y_t, p->ld_t, SQUARE);
    const auto kernel =
        p->format == SB_E4M3 ? quantize_kernel<T, SB_E4M3, SOURCE> : quantize_kernel<T, SB_E5M2, SOURCE>;
    sb_quantize q = *p;
    q.scaling_t = q.scaling_t ? q.scaling_t : q.scaling;
    q.again = false;
    if (!starts_early(p->scaling)) {
        kernel<<<grid, THREADS, 0, stream>>>(q, whole_x, whole_y, whole_t);
        return sb_cuda_launched("quantize kernel");
    }
    launch_early(ctx, kernel, grid, THREADS, 0, stream, q, whole_x, whole_y, whole_t);
    if (p->again) { /* its amax_t is the guess */
        q.again = true, q.amax = p->largest, q.amax_t = p->amax, q.largest = NULL;
        launch_early(ctx, kernel, grid, THREADS, 0, stream, q, whole_x, whole_y, whole_t);
    }
    return sb_cuda_launched("quantize kernel");
}

} // namespace

extern "C" sb_status sb_cuda_quantize(sb_context *ctx, const sb_quantize *p, void *stream)
{
    sb_status s = sb_quantize_check(p);
    if (s == SB_OK && p->scaling == SB_SCALE_1X32)
        s = sb_error(SB_UNSUPPORTED,
                     "quantize: there is no CUDA kernel for blocks of 1x32 yet; the CPU backend has them");
    if (s == SB_OK && p->rows > (int64_t)TILE * MAX_GRID_Y)
        s = sb_error(SB_UNSUPPORTED, "quantize: %d rows are more than the %d that one launch takes", p->rows,
                     TILE * MAX_GRID_Y);
    if (s != SB_OK)
        return s;
    return with_source("quantize", p->dtype, p->source, [&](auto element, auto source) {
        return launch<decltype(element), source>(ctx, p, (cudaStream_t)stream);
    });
}
