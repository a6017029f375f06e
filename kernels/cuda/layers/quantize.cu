/* SPDX-License-Identifier: MIT */
/* Casts to float8, with the transposed copy in one pass.
 *
 * Bound: bytes, and close behind them instructions. A block of threads casts a tile of 128 x 128: it reads x once, keeps it in registers as it is
 * stored, and writes whole lines of 128 bytes of both copies. A thread has a square of 8 x 8, so that the 8 bytes of a row and the
 * 8 of a column are both its own; the transposed copy passes through shared memory, whose units of 8 bytes are swizzled. Each thread
 * makes the scale of one row or column of the tile for all; where scales are of blocks, of largest magnitudes that are found
 * in the tile, two elements of 16 bits at a time. Where one scale serves both copies, the codes of the one are turned to be the other's. bf16
 * is multiplied as pairs. Elements outside of the matrix count as zeros and are not written. Where another op makes
 * the matrix, its inputs are what is read, and a tile of gate's gradients is followed by that of up's. Sources of the recipe:
 * kernels/float8.h. */
#include <cuda_fp8.h>

#include "kernels/cuda/primitives/early.cuh"
#include "kernels/cuda/primitives/float8.cuh"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

namespace
{

constexpr int THREADS = 256, WARPS = THREADS / 32, TILE = SB_FLOAT8_BLOCK;
constexpr int LANES = TILE / SQUARE; /* of a warp, along a row of the tile */
constexpr int MAX_GRID_Y = 65535;

/* ---- numbers ---- */

/* Two neighbours of a row times two factors, which are bf16 and powers of two or NaN. What is not finite becomes NaN, where the
 * conversion alone would make the largest value of infinity. In bf16 a product loses bits only where it is far below the smallest code. */
template <typename T>
__device__ __forceinline__ float2 scaled(const eight<T> &x, int pair, unsigned factors)
{
    float y[2], f[2];
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        __nv_bfloat162 a, b;
        memcpy(&a, &x.w[pair], sizeof a), memcpy(&b, &factors, sizeof b);
        a = __hfma2(a, __nv_bfloat162(0, 0), __hmul2(a, b));
        unsigned both;
        memcpy(&both, &a, sizeof both);
        word<T>::unpack(both, y);
    } else {
        word<__nv_bfloat16>::unpack(factors, f);
#pragma unroll
        for (int i = 0; i < 2; i++)
            y[i] = __fmaf_rn(x.at(2 * pair + i), 0.0f, __fmul_rn(x.at(2 * pair + i), f[i]));
    }
    return make_float2(y[0], y[1]);
}

/* GPUs before compute capability 8.9 have no instruction for it, but fifty, which are not repeated for each code. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
#define CODES_INLINE __noinline__
#else
#define CODES_INLINE __forceinline__
#endif
template <sb_dtype FORMAT>
__device__ CODES_INLINE __nv_fp8x2_storage_t two_codes(float a, float b)
{
    return __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, FORMAT == SB_E4M3 ? __NV_E4M3 : __NV_E5M2);
}

/* Codes of four numbers, the first in the lowest byte. */
template <sb_dtype FORMAT>
__device__ __forceinline__ unsigned codes_of(float a, float b, float c, float d)
{
    return two_codes<FORMAT>(a, b) | (unsigned)two_codes<FORMAT>(c, d) << 16;
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

/* ---- places ---- */

struct shared_tile {
    union {
        uint2 transposed[TILE * LANES]; /* unit (column, rows / 8) at column * LANES + (rows / 8 ^ column / 8) */
        struct {                        /* largest magnitudes, as they are stored or in fp32: */
            unsigned down[WARPS * TILE], along[TILE]; /* of each column by warp, and of each row */
        } largest;
    };
    unsigned of_warp[WARPS];
    alignas(16) unsigned short factors[THREADS]; /* bf16: of the rows of y, then of y_t */
};

/* A thread's square in the tile and in the matrix. */
struct place {
    int along, unit;             /* its column and row of squares in the tile */
    int first_row, first_column; /* of the tile, */
    int end_column;              /* whose columns end there */
    int row, column;             /* its first element */
    int rows, columns;           /* how many of its 8 x 8 elements exist */
};

__device__ __forceinline__ place place_in(int rows, int first_row, int first_column, int end_column)
{
    int thread = (int)threadIdx.x;
    asm volatile("" : "+r"(thread)); /* what follows of it is made anew for each tile: registers are short */
    place at = {thread % LANES, thread / LANES, first_row, first_column, end_column};
    at.row = first_row + at.unit * SQUARE, at.column = first_column + at.along * SQUARE;
    at.rows = min(max(rows - at.row, 0), SQUARE), at.columns = min(max(end_column - at.column, 0), SQUARE);
    return at;
}

/* WHOLE: there are 8 or none, at a multiple of 8 bytes. */
template <bool WHOLE>
__device__ __forceinline__ void store_eight(unsigned char *to, uint2 codes, int there)
{
    if (WHOLE) {
        if (there > 0)
            *reinterpret_cast<uint2 *>(to) = codes;
    } else {
#pragma unroll
        for (int i = 0; i < SQUARE; i++)
            if (i < there)
                to[i] = (unsigned char)((i < 4 ? codes.x >> (8 * i) : codes.y >> (8 * (i - 4))) & 0xff);
    }
}

/* ---- scales: that of row threadIdx.x of y, then of y_t ---- */

/* Where one serves all, or each row has one: its word. It is read before the elements, so that one wait is enough. */
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

/* N words of this thread's to memory that all see. */
template <int N>
__device__ __forceinline__ void share(unsigned *to, const unsigned (&words)[N])
{
#pragma unroll
    for (int i = 0; i < N; i += 4)
        *reinterpret_cast<uint4 *>(to + i) = make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
}

/* The largest magnitudes in the tile: of rows for 1x128 of y, of columns for that of y_t, of all for squares. Of two neighbours of
 * 16 bits at a time. */
template <typename T>
__device__ __forceinline__ void find_largest(const sb_quantize &p, const place &at, const eight<T> (&x)[SQUARE],
                                             shared_tile &tile)
{
    constexpr bool PAIRS = sizeof(T) == 2;
    constexpr int N = PAIRS ? SQUARE / 2 : SQUARE;
    const auto larger = [](unsigned a, unsigned b) { return PAIRS ? __vmaxu2(a, b) : max(a, b); };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned rows[N], columns[N] = {}, along[SQUARE] = {}, all = 0;
#pragma unroll
    for (int i = 0; i < SQUARE; i++)
#pragma unroll
        for (int j = 0; j < N; j++) {
            const unsigned bits = PAIRS ? magnitudes(x[i].w[j]) : magnitude(x[i].at(j));
            columns[j] = larger(columns[j], bits), along[i] = larger(along[i], bits);
        }
#pragma unroll
    for (int i = 0; i < N; i++) {
        rows[i] = PAIRS ? larger(__byte_perm(along[2 * i], along[2 * i + 1], 0x5410),
                                 __byte_perm(along[2 * i], along[2 * i + 1], 0x7632))
                        : along[i];
        all = larger(all, rows[i]);
    }
    if (p.scaling == SB_SCALE_128X128 || p.scaling_t == SB_SCALE_128X128) {
        all = __reduce_max_sync(0xffffffffu, PAIRS ? max(all & 0xffffu, all >> 16) : all);
        if (lane == 0)
            tile.of_warp[warp] = all;
    }
    if (p.scaling == SB_SCALE_1X128) {
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int d = LANES / 2; d > 0; d /= 2)
                rows[i] = larger(rows[i], __shfl_xor_sync(0xffffffffu, rows[i], d));
        if (at.along == 0)
            share(tile.largest.along + at.unit * N, rows);
    }
    if (p.scaling_t == SB_SCALE_1X128) {
#pragma unroll
        for (int j = 0; j < N; j++)
            columns[j] = larger(columns[j], __shfl_xor_sync(0xffffffffu, columns[j], LANES));
        if (lane < LANES)
            share(tile.largest.down + (warp * LANES + lane) * N, columns);
    }
}

template <typename T>
__device__ __forceinline__ unsigned word_found(const sb_quantize &p, const shared_tile &tile)
{
    using stored = std::conditional_t<sizeof(T) == 2, unsigned short, unsigned>;
    const bool transposed = threadIdx.x >= TILE;
    unsigned largest = 0;
    const bool lines = (transposed ? p.scaling_t : p.scaling) == SB_SCALE_1X128;
    if (lines && !transposed)
        largest = ((const stored *)tile.largest.along)[threadIdx.x];
#pragma unroll
    for (int i = 0; i < WARPS; i++)
        if (!lines)
            largest = max(largest, tile.of_warp[i]);
        else if (transposed)
            largest = max(largest, (unsigned)((const stored *)tile.largest.down)[i * TILE + threadIdx.x - TILE]);
    return sizeof(T) == 2 ? wide_magnitude<T>(largest, 0) : largest;
}

__device__ __forceinline__ void store_scale(const sb_quantize &p, const place &at, unsigned scale)
{
    const bool transposed = threadIdx.x >= TILE;
    const int rows = transposed ? p.columns : p.rows, columns = transposed ? p.rows : p.columns; /* of the copy */
    const int i = threadIdx.x % TILE, row = i + (transposed ? at.first_column : at.first_row);
    const int block = (transposed ? at.first_row : at.first_column) / TILE;
    float *scales = transposed ? p.scales_t : p.scales;
    if (!(transposed ? p.y_t : p.y) || row >= (transposed ? at.end_column : p.rows))
        return;
    switch (transposed ? p.scaling_t : p.scaling) {
    case SB_SCALE_TENSOR:
        if (row == 0 && block == 0)
            scales[0] = __uint_as_float(scale);
        break;
    case SB_SCALE_ROW:
        if (block == 0)
            scales[row] = __uint_as_float(scale);
        break;
    case SB_SCALE_1X128: scales[(int64_t)block * rows + row] = __uint_as_float(scale); break;
    case SB_SCALE_128X128:
        if (i == 0) { /* and zeros where the last square ends short of a whole unit */
            const int ld = sb_float8_square_ld(columns);
            float *line = scales + (int64_t)(row / TILE) * ld;
            line[block] = __uint_as_float(scale);
            for (int j = block + 1; block + 1 == (columns + TILE - 1) / TILE && j < ld; j++)
                line[j] = 0;
        }
        break;
    default: break;
    }
}

/* ---- codes ---- */

/* Codes of a row of the thread's square. */
template <sb_dtype FORMAT, typename T>
__device__ __forceinline__ uint2 row_codes(const eight<T> &x, unsigned factor)
{
    float2 y[SQUARE / 2];
#pragma unroll
    for (int j = 0; j < SQUARE / 2; j++)
        y[j] = scaled(x, j, factor);
    return make_uint2(codes_of<FORMAT>(y[0].x, y[0].y, y[1].x, y[1].y),
                      codes_of<FORMAT>(y[2].x, y[2].y, y[3].x, y[3].y));
}

/* Codes of two columns of the square. */
template <sb_dtype FORMAT, typename T>
__device__ __forceinline__ void column_codes(const eight<T> (&x)[SQUARE], int pair, unsigned factors, uint2 &even,
                                             uint2 &odd)
{
    float2 y[SQUARE];
#pragma unroll
    for (int i = 0; i < SQUARE; i++)
        y[i] = scaled(x[i], pair, factors);
    even =
        make_uint2(codes_of<FORMAT>(y[0].x, y[1].x, y[2].x, y[3].x), codes_of<FORMAT>(y[4].x, y[5].x, y[6].x, y[7].x));
    odd =
        make_uint2(codes_of<FORMAT>(y[0].y, y[1].y, y[2].y, y[3].y), codes_of<FORMAT>(y[4].y, y[5].y, y[6].y, y[7].y));
}

/* The factor of row or column i of eight, twice. */
__device__ __forceinline__ unsigned factor_of(const uint4 &factors, int i)
{
    const unsigned w = i < 4 ? (i < 2 ? factors.x : factors.y) : i < 6 ? factors.z : factors.w;
    return __byte_perm(w, 0, i % 2 ? 0x3232 : 0x1010);
}

/* The codes of a tile whose elements the threads hold. WHOLE: sb_quantize's matrix is of whole squares where it has both copies, of whole rows of
 * squares else, and nothing is counted. `word`: word_given. */
template <typename T, sb_dtype FORMAT, bool WHOLE>
__device__ __forceinline__ void cast_tile(const sb_quantize &p, const place &at, const eight<T> (&x)[SQUARE],
                                          unsigned word, shared_tile &tile)
{
    unsigned largest = 0;
    if (p.largest)
#pragma unroll
        for (int i = 0; i < SQUARE; i++)
            largest = max(largest, largest_in(x[i]));
    __syncthreads(); /* the tile before has been written */
    if (p.scaling != SB_SCALE_TENSOR && p.scaling != SB_SCALE_ROW) {
        find_largest(p, at, x, tile);
        __syncthreads();
        word = word_found<T>(p, tile);
    }
    const unsigned scale = sb_float8_scale_bits(word, FORMAT);
    tile.factors[threadIdx.x] = (unsigned short)(sb_float8_inverse_bits(scale) >> 16);
    store_scale(p, at, scale);
    __syncthreads();

    const bool one = p.scaling == SB_SCALE_TENSOR || p.scaling == SB_SCALE_128X128; /* scale for both copies */
    const uint4 of_rows = *reinterpret_cast<const uint4 *>(tile.factors + at.unit * SQUARE),
                of_columns = *reinterpret_cast<const uint4 *>(tile.factors + TILE + at.along * SQUARE);
    const auto put = [&](int j, uint2 codes) {
        tile.transposed[(at.along * SQUARE + j) * LANES + (at.unit ^ at.along)] = codes;
    };
    const int rows = p.y ? at.rows : 0;
    unsigned char *y = (unsigned char *)p.y + (int64_t)at.row * p.ld_y + at.column;
    const auto store_row = [&](int i, uint2 codes) {
        store_eight<WHOLE>(y, codes, i < rows ? at.columns : 0);
        y += p.ld_y;
    };
    if (one) {
        uint2 codes[SQUARE];
#pragma unroll
        for (int i = 0; i < SQUARE; i++)
            store_row(i, codes[i] = row_codes<FORMAT>(x[i], factor_of(of_rows, i)));
        turn_square(codes);
#pragma unroll
        for (int j = 0; j < SQUARE; j++)
            put(j, codes[j]);
    } else {
#pragma unroll
        for (int i = 0; i < SQUARE; i++)
            store_row(i, row_codes<FORMAT>(x[i], factor_of(of_rows, i)));
#pragma unroll
        for (int j = 0; j < SQUARE / 2; j++) {
            uint2 even, odd;
            column_codes<FORMAT>(x, j,
                                 j == 0   ? of_columns.x
                                 : j == 1 ? of_columns.y
                                 : j == 2 ? of_columns.z
                                          : of_columns.w,
                                 even, odd);
            put(2 * j, even), put(2 * j + 1, odd);
        }
    }
    if (p.y_t) {
        __syncthreads();
        /* Half a warp writes the 128 bytes of one column. */
        constexpr int STRIDE = THREADS / LANES;
        const int from_row = at.first_row + at.along * SQUARE, there = min(max(p.rows - from_row, 0), SQUARE);
        int to = at.first_column + at.unit;
        unsigned char *y_t = (unsigned char *)p.y_t + (int64_t)to * p.ld_t + from_row;
        uint2 codes[TILE / STRIDE];
#pragma unroll
        for (int i = 0; i < TILE / STRIDE; i++)
            codes[i] = tile.transposed[(i * STRIDE + at.unit) * LANES + (at.along ^ (i * STRIDE + at.unit) / SQUARE)];
#pragma unroll
        for (int i = 0; i < TILE / STRIDE; i++) {
            store_eight<WHOLE>(y_t, codes[i], to < at.end_column ? there : 0);
            to += STRIDE, y_t += (int64_t)STRIDE * p.ld_t;
        }
    }
    if (!WHOLE && p.counts) {
        unsigned cut = 0, zeros = 0;
#pragma unroll
        for (int i = 0; i < SQUARE; i++)
#pragma unroll
            for (int j = 0; j < SQUARE; j++)
                count<FORMAT>(x[i].at(j),
                              __uint_as_float(p.y ? factor_of(of_rows, i) << 16 : factor_of(of_columns, j) << 16), cut,
                              zeros);
        cut = __reduce_add_sync(0xffffffffu, cut);
        zeros = __reduce_add_sync(0xffffffffu, zeros);
        if (threadIdx.x % 32 == 0 && cut > 0)
            atomicAdd(p.counts, cut);
        if (threadIdx.x % 32 == 0 && zeros > 0)
            atomicAdd(p.counts + 1, zeros);
    }
    if (p.largest)
        raise(p.largest, largest);
}

/* Blocks that a multiprocessor is to hold: many where the step's casts are, which are of whole squares of bf16. */
template <typename T, sb_float8_source SOURCE, bool WHOLE>
constexpr int BLOCKS = !WHOLE || !std::is_same_v<T, __nv_bfloat16> ? 1
                       : SOURCE == SB_FROM_SWIGLU_GRADIENT         ? 2
                                                                   : 4;

template <typename T, sb_dtype FORMAT, sb_float8_source SOURCE, bool WHOLE>
__global__ void __launch_bounds__(THREADS, BLOCKS<T, SOURCE, WHOLE>) quantize_kernel(sb_quantize p)
{
    constexpr bool GRADIENT = SOURCE == SB_FROM_SWIGLU_GRADIENT;
    /* Rows that are read at once. What SwiGLU reads takes more registers than what it makes; else x lies in those. */
    constexpr int BATCH = !WHOLE || SOURCE == SB_FROM_X ? 1 : eight_inputs<SOURCE, T>::SWIGLU ? 2 : SQUARE;
    __shared__ shared_tile tile;
    wait_if_early();
    if (p.again && sb_float8_scale_bits(p.amax[0], FORMAT) == sb_float8_scale_bits(p.amax_t[0], FORMAT))
        return;
    const int f = GRADIENT ? p.columns / 2 : p.columns, first = (int)blockIdx.x * TILE;
    for (int first_row = (int)blockIdx.y * TILE; first_row < p.rows; first_row += (int)gridDim.y * TILE) {
        const place at = place_in(p.rows, first_row, first, f);
        const unsigned word = word_given(p, at);
        const int there = WHOLE ? SQUARE : at.columns;
        shared_place<SOURCE> shared(p.from, at.row, at.column);
        const T *from = (const T *)p.x + (int64_t)at.row * p.ld + at.column,
                *dh = GRADIENT ? (const T *)p.from.dh + (int64_t)at.row * f + at.column : NULL;
        eight<T> x[SQUARE] = {}, up[GRADIENT ? SQUARE : 1] = {};
#pragma unroll
        for (int i = 0; i < SQUARE; i += BATCH) {
            eight_inputs<SOURCE, T> in[BATCH];
            if (i >= at.rows || at.columns <= 0)
                break;
#pragma unroll
            for (int j = 0; j < BATCH; j++)
                in[j].load(from + j * (int64_t)p.ld, dh + j * (int64_t)f, f, there, WHOLE);
            from += BATCH * (int64_t)p.ld, dh += GRADIENT ? BATCH * (int64_t)f : 0;
#pragma unroll
            for (int j = 0; j < BATCH; j++) {
                in[j].load_shared(p.from, shared, there, WHOLE);
                in[j].make(shared, x[i + j], up[GRADIENT ? i + j : 0]);
                shared.next_row(p.from);
            }
        }
        cast_tile<T, FORMAT, WHOLE>(p, at, x, word, tile);
        if constexpr (GRADIENT) {
            const place behind = place_in(p.rows, first_row, f + first, 2 * f);
            cast_tile<T, FORMAT, WHOLE>(p, behind, up, word_given(p, behind), tile);
        }
    }
}

/* ---- launches ---- */

/* Do rows begin at multiples of `bytes`? */
bool aligned(const void *p, int64_t ld_bytes, int bytes)
{
    return (uintptr_t)p % bytes == 0 && ld_bytes % bytes == 0;
}

template <typename T, sb_float8_source SOURCE, bool WHOLE>
sb_status launch_kernel(const sb_context *ctx, const sb_quantize *p, cudaStream_t stream)
{
    const int columns = SOURCE == SB_FROM_SWIGLU_GRADIENT ? p->columns / 2 : p->columns;
    dim3 grid((columns + TILE - 1) / TILE, min((p->rows + TILE - 1) / TILE, MAX_GRID_Y));
    const auto kernel =
        p->format == SB_E4M3 ? quantize_kernel<T, SB_E4M3, SOURCE, WHOLE> : quantize_kernel<T, SB_E5M2, SOURCE, WHOLE>;
    sb_quantize q = *p;
    q.scaling_t = q.scaling_t ? q.scaling_t : q.scaling;
    q.again = false;
    launch_early(ctx, kernel, grid, THREADS, 0, stream, q);
    if (p->again) { /* its amax_t is the guess; a launch that most often ends at once has few blocks */
        q.again = true, q.amax = p->largest, q.amax_t = p->amax, q.largest = NULL;
        grid.y = min((int)grid.y, max(2 * ctx->sm_count / (int)grid.x, 1));
        launch_early(ctx, kernel, grid, THREADS, 0, stream, q);
    }
    return sb_cuda_launched("quantize kernel");
}

template <typename T, sb_float8_source SOURCE>
sb_status launch(const sb_context *ctx, const sb_quantize *p, cudaStream_t stream)
{
    const int f = SOURCE == SB_FROM_SWIGLU_GRADIENT ? p->columns / 2 : p->columns;
    const bool whole =
        !p->counts && f % SQUARE == 0 && aligned(p->x, p->ld * (int64_t)sizeof(T), 16) &&
        (SOURCE == SB_FROM_X || aligned(p->from.dh, f * (int64_t)sizeof(T), 16)) && aligned(p->y, p->ld_y, SQUARE) &&
        ((!p->y_t && SOURCE == SB_FROM_X) || (p->rows % SQUARE == 0 && aligned(p->y_t, p->ld_t, SQUARE)));
    return whole ? launch_kernel<T, SOURCE, true>(ctx, p, stream) : launch_kernel<T, SOURCE, false>(ctx, p, stream);
}

} // namespace

extern "C" sb_status sb_cuda_quantize(sb_context *ctx, const sb_quantize *p, void *stream)
{
    SB_TRY(sb_quantize_check(p));
    if (p->scaling == SB_SCALE_1X32)
        return sb_error(SB_UNSUPPORTED,
                        "quantize: there is no CUDA kernel for blocks of 1x32 yet; the CPU backend has them");
    return with_source("quantize", p->dtype, p->from, [&](auto element, auto source) {
        return launch<decltype(element), source>(ctx, p, (cudaStream_t)stream);
    });
}
