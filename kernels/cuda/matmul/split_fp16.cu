/* SPDX-License-Identifier: MIT */
/* fp32 operands to fp16 parts: a pass for the largest magnitude of each, then a pass that scales and splits.
 *
 * Bound by memory: 4 bytes read in the first pass, 4 read and 4 written in the second, per element; operands of up to
 * the L2's size come from there the second time. Both operands share a launch, blocks in proportion to their elements.
 * A thread takes units of four elements along a row, so that a warp reads 512 contiguous bytes and writes 256 to each
 * part, and has four of them in flight. The largest magnitude is a maximum of integers: the same in any order. */
#include "kernels/cuda/matmul/split_fp16.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/runtime/context.h"

namespace
{

constexpr int THREADS = 256, WARPS = THREADS / 32, IN_FLIGHT = 4;
constexpr int BLOCKS_PER_SM = 4;
constexpr int TOP = 14;           /* the largest magnitude goes to [2^TOP, 2^(TOP+1)) */
constexpr int LO_SHIFT = 11;      /* lo is kept 2^11 times as large */
constexpr int MOST_SHIFTED = 115; /* by both scales together: alpha_small is then at least 2^-126, still normal */
constexpr unsigned INFINITY_BITS = 0x7f800000u;

struct operand {
    const float *x;
    __half *hi, *lo;
    int64_t ld, part_ld;
    unsigned rows, columns; /* size of the matrix */
    unsigned units, units_per_row;
    unsigned first_block, blocks;
    bool vector; /* float4 loads are aligned */
};

struct operands {
    operand o[2];
};

/* What the first pass left: `border` words of the first operand, then words of the second up to `end`. */
struct partial_maxima {
    const unsigned *words;
    unsigned border, end;
};

/* Up to four elements from (row, column) on; zeros outside the matrix. */
__device__ __forceinline__ float4 load4(const operand &o, unsigned row, unsigned column)
{
    float4 v = make_float4(0, 0, 0, 0);
    if (row >= o.rows)
        return v;
    const float *p = o.x + row * o.ld + column;
    if (o.vector && column + 4 <= o.columns)
        return *reinterpret_cast<const float4 *>(p);
    if (column < o.columns)
        v.x = p[0];
    if (column + 1 < o.columns)
        v.y = p[1];
    if (column + 2 < o.columns)
        v.z = p[2];
    if (column + 3 < o.columns)
        v.w = p[3];
    return v;
}

/* Magnitudes order like their bits. Infinities and NaNs do not count: the finite elements must keep a scale of use. */
__device__ __forceinline__ unsigned magnitude(float x)
{
    const unsigned bits = __float_as_uint(x) & 0x7fffffffu;
    return bits < INFINITY_BITS ? bits : 0;
}

/* The block's maximum, in all of its threads. `slots` is used by one call only. */
__device__ __forceinline__ unsigned block_max(unsigned v, unsigned (&slots)[WARPS])
{
    v = __reduce_max_sync(0xffffffffu, v);
    if (threadIdx.x % 32 == 0)
        slots[threadIdx.x / 32] = v;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WARPS; i++)
        v = max(v, slots[i]);
    return v;
}

__global__ void __launch_bounds__(THREADS) largest_kernel(const __grid_constant__ operands p, unsigned *partials)
{
    __shared__ unsigned slots[WARPS];
    const operand &o = p.o[blockIdx.x >= p.o[1].first_block];
    const uint64_t step = (uint64_t)o.blocks * THREADS;
    unsigned most = 0;
    for (uint64_t first = (blockIdx.x - o.first_block) * THREADS + threadIdx.x; first < o.units;
         first += IN_FLIGHT * step) {
        float4 v[IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++) {
            const uint64_t unit = first + i * step;
            const unsigned row = (unsigned)unit / o.units_per_row;
            v[i] =
                unit < o.units ? load4(o, row, ((unsigned)unit - row * o.units_per_row) * 4) : make_float4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++)
            most = max(max(most, max(magnitude(v[i].x), magnitude(v[i].y))), max(magnitude(v[i].z), magnitude(v[i].w)));
    }
    most = block_max(most, slots);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = most;
}

/* floor(log2) of a magnitude; 0 for zero, where any scale will do. */
__device__ __forceinline__ int exponent(unsigned bits)
{
    if (bits == 0)
        return 0;
    return bits >= 0x00800000u ? (int)(bits >> 23) - 127 : 31 - __clz((int)bits) - 149;
}

/* 2^e as fp32; infinity from 128 on. e is at least -126. */
__device__ __forceinline__ float power_of_two(int e)
{
    return __uint_as_float((unsigned)(min(e, 128) + 127) << 23);
}

__device__ __forceinline__ unsigned pack(__half a, __half b)
{
    return (unsigned)__half_as_ushort(b) << 16 | __half_as_ushort(a);
}

/* x - hi is exact: hi is the nearest multiple of its own last place, which is a multiple of x's. */
__device__ __forceinline__ __half low_part(float x, __half hi)
{
    return __float2half_rn((x - __half2float(hi)) * (float)(1 << LO_SHIFT));
}

__device__ __forceinline__ void store_parts(const operand &o, unsigned row, unsigned column, float4 v, float scale)
{
    v.x *= scale, v.y *= scale, v.z *= scale, v.w *= scale;
    const __half h0 = __float2half_rn(v.x), h1 = __float2half_rn(v.y), h2 = __float2half_rn(v.z),
                 h3 = __float2half_rn(v.w);
    const int64_t at = row * o.part_ld + column;
    *reinterpret_cast<uint2 *>(o.hi + at) = make_uint2(pack(h0, h1), pack(h2, h3));
    *reinterpret_cast<uint2 *>(o.lo + at) =
        make_uint2(pack(low_part(v.x, h0), low_part(v.y, h1)), pack(low_part(v.z, h2), low_part(v.w, h3)));
}

/* The scale of this block's operand. Every block goes over the partial maxima again: less than a launch costs. */
__device__ __forceinline__ float choose_scale(const partial_maxima &found, bool second, split_scalars *scalars)
{
    __shared__ unsigned slots_a[WARPS], slots_b[WARPS];
    unsigned most_a = 0, most_b = 0;
    for (unsigned i = threadIdx.x; i < found.end; i += THREADS) {
        const unsigned word = found.words[i];
        most_a = max(most_a, i < found.border ? word : 0);
        most_b = max(most_b, i < found.border ? 0 : word);
    }
    int shift_a = min(TOP - exponent(block_max(most_a, slots_a)), 127);
    int shift_b = min(TOP - exponent(block_max(most_b, slots_b)), 127);
    const int excess = max(shift_a + shift_b - MOST_SHIFTED, 0);
    shift_a -= excess / 2;
    shift_b -= excess - excess / 2;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *scalars = {power_of_two(-shift_a - shift_b - LO_SHIFT), power_of_two(-shift_a - shift_b), 1.0f, 0.0f};
    return power_of_two(second ? shift_b : shift_a);
}

/* Here units are counted in a part, which may be larger than the matrix. */
__global__ void __launch_bounds__(THREADS)
    fp16_parts_kernel(const __grid_constant__ operands p, const partial_maxima found, split_scalars *scalars)
{
    const bool second = blockIdx.x >= p.o[1].first_block;
    const operand &o = p.o[second];
    const float scale = choose_scale(found, second, scalars);
    const uint64_t step = (uint64_t)o.blocks * THREADS;
    for (uint64_t first = (blockIdx.x - o.first_block) * THREADS + threadIdx.x; first < o.units;
         first += IN_FLIGHT * step) {
        float4 v[IN_FLIGHT];
        unsigned row[IN_FLIGHT], column[IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++) {
            const uint64_t unit = first + i * step;
            row[i] = (unsigned)unit / o.units_per_row;
            column[i] = ((unsigned)unit - row[i] * o.units_per_row) * 4;
            if (unit < o.units)
                v[i] = load4(o, row[i], column[i]);
        }
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++)
            if (first + i * step < o.units)
                store_parts(o, row[i], column[i], v[i], scale);
    }
}

operand describe(const split_operand &s, int64_t rows, int64_t columns)
{
    operand o = {};
    o.x = s.x;
    o.hi = (__half *)s.hi, o.lo = (__half *)s.lo;
    o.ld = s.ld, o.part_ld = s.part_ld;
    o.rows = (unsigned)s.rows, o.columns = (unsigned)s.columns;
    o.units_per_row = (unsigned)((columns + 3) / 4);
    o.units = (unsigned)(rows * o.units_per_row);
    o.vector = (uintptr_t)s.x % 16 == 0 && s.ld % 4 == 0;
    return o;
}

/* Blocks for both operands, `most` at most; returns how many. */
unsigned share_blocks(operands *p, unsigned most)
{
    operand &a = p->o[0], &b = p->o[1];
    const unsigned per_block = THREADS * IN_FLIGHT;
    a.blocks = (unsigned)(((uint64_t)a.units + per_block - 1) / per_block);
    b.blocks = (unsigned)(((uint64_t)b.units + per_block - 1) / per_block);
    if ((uint64_t)a.blocks + b.blocks > most) {
        const uint64_t share = (uint64_t)most * a.units / ((uint64_t)a.units + b.units);
        a.blocks = share < 1 ? 1 : share > most - 1 ? most - 1 : (unsigned)share;
        b.blocks = most - a.blocks;
    }
    a.first_block = 0, b.first_block = a.blocks;
    return a.blocks + b.blocks;
}

} // namespace

extern "C" sb_status split_fp16_parts(const split_operand *a, const split_operand *b, split_scalars *scalars,
                                      unsigned *partials, int sm_count, void *stream)
{
    const unsigned most = sm_count * BLOCKS_PER_SM < SPLIT_PARTIALS ? sm_count * BLOCKS_PER_SM : SPLIT_PARTIALS;
    const int64_t part_a = (int64_t)a->part_rows * a->part_columns, part_b = (int64_t)b->part_rows * b->part_columns,
                  limit = (int64_t)1 << 34;
    if (part_a >= limit || part_b >= limit)
        return sb_error(SB_UNSUPPORTED, "an operand of a split matmul has 2^34 elements or more");

    operands read = {{describe(*a, a->rows, a->columns), describe(*b, b->rows, b->columns)}};
    const unsigned readers = share_blocks(&read, most);
    largest_kernel<<<readers, THREADS, 0, (cudaStream_t)stream>>>(read, partials);
    SB_TRY(sb_cuda_launched("largest magnitude kernel"));

    operands write = {{describe(*a, a->part_rows, a->part_columns), describe(*b, b->part_rows, b->part_columns)}};
    const unsigned writers = share_blocks(&write, most);
    const partial_maxima found = {partials, read.o[1].first_block, readers};
    fp16_parts_kernel<<<writers, THREADS, 0, (cudaStream_t)stream>>>(write, found, scalars);
    return sb_cuda_launched("fp16 parts kernel");
}
