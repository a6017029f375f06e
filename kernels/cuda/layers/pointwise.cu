/* SPDX-License-Identifier: MIT */
/* One operation on each element: the kernels that an eager framework launches between its products.
 *
 * Bound: bytes. A unit is E neighbouring elements of a row: one access of 16 bytes where all dtypes are the same, four
 * elements (8 or 16 bytes) where fp32 meets a 16-bit dtype. A thread loads its UNITS units before it computes; the
 * operation is chosen once a thread, by a switch that all threads take alike. Arrays that are contiguous throughout
 * count as one long row. What has no units (rows of odd length or alignment, bf16 with fp16) goes by elements. */
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/primitives/packed.cuh"
#include "kernels/cuda/train.h"
#include "kernels/shared/train_check.h"

#include <type_traits>

namespace
{

constexpr int THREADS = 256;
constexpr int64_t MAX_GRID = 0x7fffffff;

__device__ __forceinline__ float sigmoid(float x)
{
    return __fdividef(1.0f, 1.0f + expf(-x));
}

template <sb_point OP>
__device__ __forceinline__ float point(float a, float b, float scalar)
{
    switch (OP) {
    case SB_POINT_COPY: return a;
    case SB_POINT_ADD: return a + b;
    case SB_POINT_SUB: return a - b;
    case SB_POINT_MUL: return a * b;
    case SB_POINT_DIV: return a / b;
    case SB_POINT_SCALE: return a * scalar;
    case SB_POINT_SHIFT: return a + scalar;
    case SB_POINT_LERP: return a + scalar * (b - a);
    case SB_POINT_SQRT: return sqrtf(a);
    case SB_POINT_RSQRT: return rsqrtf(a);
    case SB_POINT_SIGMOID: return sigmoid(a);
    case SB_POINT_SILU: return a * sigmoid(a);
    case SB_POINT_SILU_GRAD: {
        const float s = sigmoid(a);
        return b * (s * (1 + a * (1 - s)));
    }
    case SB_POINT_RELU: return a < 0 ? 0.0f : a;
    case SB_POINT_RELU_GRAD: return a > 0 ? b : 0.0f;
    case SB_POINT_EXP: return expf(a);
    case SB_POINT_LOG: return logf(a);
    }
    return 0;
}

/* f with the operation as a constant of its type. */
template <typename F>
__device__ __forceinline__ void with_point(sb_point op, F f)
{
#define CASE(OP)                                                                                                       \
    case OP: f(std::integral_constant<sb_point, OP>()); break
    switch (op) {
        CASE(SB_POINT_COPY);
        CASE(SB_POINT_ADD);
        CASE(SB_POINT_SUB);
        CASE(SB_POINT_MUL);
        CASE(SB_POINT_DIV);
        CASE(SB_POINT_SCALE);
        CASE(SB_POINT_SHIFT);
        CASE(SB_POINT_LERP);
        CASE(SB_POINT_SQRT);
        CASE(SB_POINT_RSQRT);
        CASE(SB_POINT_SIGMOID);
        CASE(SB_POINT_SILU);
        CASE(SB_POINT_SILU_GRAD);
        CASE(SB_POINT_RELU);
        CASE(SB_POINT_RELU_GRAD);
        CASE(SB_POINT_EXP);
        CASE(SB_POINT_LOG);
    }
#undef CASE
}

/* The matrix in units of E elements, or in elements where E is 1. */
struct geometry {
    sb_point op;
    sb_spread spread;
    bool has_b;
    float scalar;
    int64_t units, row_units; /* units of all rows; of one row */
    int64_t lda, ldb, ld_out; /* elements */
};

struct position {
    int64_t row, column; /* column: of the first element */
};

__device__ __forceinline__ position locate(const geometry &g, int64_t unit, int E)
{
    if (g.units == g.row_units)
        return {0, unit * E};
    if (g.units <= 0xffffffffll) {
        const unsigned row = (unsigned)unit / (unsigned)g.row_units;
        return {row, (int64_t)((unsigned)unit - row * (unsigned)g.row_units) * E};
    }
    const int64_t row = unit / g.row_units;
    return {row, (unit - row * g.row_units) * E};
}

/* Where b's element for a position is. */
__device__ __forceinline__ int64_t index_b(const geometry &g, const position &at)
{
    switch (g.spread) {
    case SB_SPREAD_FULL: return at.row * g.ldb + at.column;
    case SB_SPREAD_ROW: return at.row;
    case SB_SPREAD_COLUMN: return at.column;
    default: return 0;
    }
}

/* out may be a or b: a thread reads each unit before it writes it, and no other thread reads it. */
template <typename A, typename B, typename O, int E, int UNITS>
__global__ void __launch_bounds__(THREADS) units_kernel(const A *a, const B *b, O *out, geometry g)
{
    const int64_t first = (int64_t)blockIdx.x * (THREADS * UNITS) + threadIdx.x;
    packed<A, E> x[UNITS];
    packed<B, E> y[UNITS];
    B one[UNITS]; /* b, where it is the same for a whole unit */
    int64_t to[UNITS];
    const bool whole = g.spread == SB_SPREAD_FULL || g.spread == SB_SPREAD_COLUMN;
#pragma unroll
    for (int i = 0; i < UNITS; i++) {
        const int64_t unit = first + i * THREADS;
        if (unit >= g.units)
            continue;
        const position at = locate(g, unit, E);
        to[i] = at.row * g.ld_out + at.column;
        x[i] = *reinterpret_cast<const packed<A, E> *>(a + at.row * g.lda + at.column);
        if (g.has_b) {
            const B *from = b + index_b(g, at);
            if (whole)
                y[i] = *reinterpret_cast<const packed<B, E> *>(from);
            else
                one[i] = *from;
        }
    }
    if (!whole)
#pragma unroll
        for (int i = 0; i < UNITS; i++)
            y[i].fill(one[i]);
    with_point(g.op, [&](auto op) {
#pragma unroll
        for (int i = 0; i < UNITS; i++) {
            float f[E], h[E];
            x[i].unpack(f);
            y[i].unpack(h);
#pragma unroll
            for (int j = 0; j < E; j++)
                f[j] = point<decltype(op)::value>(f[j], h[j], g.scalar);
            packed<O, E> z;
            z.pack(f);
            if (first + i * THREADS < g.units)
                *reinterpret_cast<packed<O, E> *>(out + to[i]) = z;
        }
    });
}

/* Elements [first, g.units), whatever their dtypes and places. */
__global__ void __launch_bounds__(THREADS)
    elements_kernel(const void *a, const void *b, void *out, geometry g, int64_t first, sb_dtype dtype_a,
                    sb_dtype dtype_b, sb_dtype dtype_out)
{
    const int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t i = first + (int64_t)blockIdx.x * THREADS + threadIdx.x; i < g.units; i += stride) {
        const position at = locate(g, i, 1);
        const float x = get_element(a, dtype_a, at.row * g.lda + at.column);
        const float y = g.has_b ? get_element(b, dtype_b, index_b(g, at)) : 0.0f;
        float z = 0;
        with_point(g.op, [&](auto op) { z = point<decltype(op)::value>(x, y, g.scalar); });
        set_element(out, dtype_out, at.row * g.ld_out + at.column, z);
    }
}

unsigned grid_for(int64_t units, int per_block)
{
    const int64_t blocks = (units + per_block - 1) / per_block;
    return (unsigned)(blocks < MAX_GRID ? blocks : MAX_GRID);
}

sb_status launch_elements(const sb_pointwise *p, const geometry &g, int64_t first, cudaStream_t stream)
{
    if (first >= g.units)
        return SB_OK;
    elements_kernel<<<grid_for(g.units - first, THREADS), THREADS, 0, stream>>>(p->a, p->b, p->out, g, first,
                                                                                p->dtype_a, p->dtype_b, p->dtype_out);
    return sb_cuda_launched("pointwise kernel, by elements");
}

template <typename A, typename B, typename O>
constexpr int unit_elements()
{
    return std::is_same_v<A, B> && std::is_same_v<A, O> ? 16 / (int)sizeof(A) : 4;
}

bool aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* One long row of whole units and a remainder, or rows of whole units: else by elements. */
template <typename A, typename B, typename O>
sb_status launch(const sb_pointwise *p, geometry g, cudaStream_t stream)
{
    constexpr int E = unit_elements<A, B, O>(), UNITS = 16 / E;
    const int64_t elements = g.units, row = g.row_units;
    const bool rows_of_units = row % E == 0 && g.lda % E == 0 && g.ld_out % E == 0 &&
                               (!g.has_b || g.spread != SB_SPREAD_FULL || g.ldb % E == 0);
    if (!aligned(p->a) || !aligned(p->out) || (g.has_b && !aligned(p->b)) || (elements != row && !rows_of_units) ||
        elements < E)
        return launch_elements(p, g, 0, stream);
    geometry in_units = g;
    in_units.units = elements / E;
    in_units.row_units = row / E;
    if (in_units.units > MAX_GRID * THREADS * UNITS)
        return sb_error(SB_UNSUPPORTED, "pointwise: %lld elements are too many", (long long)elements);
    units_kernel<A, B, O, E, UNITS><<<grid_for(in_units.units, THREADS * UNITS), THREADS, 0, stream>>>(
        (const A *)p->a, (const B *)p->b, (O *)p->out, in_units);
    SB_TRY(sb_cuda_launched("pointwise kernel"));
    return launch_elements(p, g, elements / E * E, stream);
}

bool is_fp32(sb_dtype t)
{
    return t == SB_FP32 || t == SB_TF32;
}

/* Every mixture of fp32 and one 16-bit dtype H. */
template <typename H>
sb_status launch_mixture(const sb_pointwise *p, const geometry &g, sb_dtype dtype_b, cudaStream_t stream)
{
    const bool a = is_fp32(p->dtype_a), b = is_fp32(dtype_b), out = is_fp32(p->dtype_out);
    if (a)
        return b     ? out ? launch<float, float, float>(p, g, stream) : launch<float, float, H>(p, g, stream)
                   : out ? launch<float, H, float>(p, g, stream)
                     : launch<float, H, H>(p, g, stream);
    return b     ? out ? launch<H, float, float>(p, g, stream) : launch<H, float, H>(p, g, stream)
               : out ? launch<H, H, float>(p, g, stream)
                 : launch<H, H, H>(p, g, stream);
}

/* Contiguous arrays of the same shape, or one with a single number, are one long row. */
geometry geometry_of(const sb_pointwise *p)
{
    const bool has_b = sb_point_has_b(p->op);
    const bool flat =
        p->lda == p->columns && p->ld_out == p->columns &&
        (!has_b || p->spread_b == SB_SPREAD_ONE || (p->spread_b == SB_SPREAD_FULL && p->ldb == p->columns));
    const int64_t elements = (int64_t)p->rows * p->columns;
    return {p->op,  p->spread_b, has_b,    p->scalar, elements, flat || p->rows == 1 ? elements : p->columns,
            p->lda, p->ldb,      p->ld_out};
}

} // namespace

extern "C" sb_status sb_cuda_pointwise(sb_context *ctx, const sb_pointwise *p, void *stream)
{
    (void)ctx;
    SB_TRY(sb_pointwise_check(p));
    const geometry g = geometry_of(p);
    const sb_dtype dtype_b = g.has_b ? p->dtype_b : p->dtype_a;
    const bool bf16 = p->dtype_a == SB_BF16 || dtype_b == SB_BF16 || p->dtype_out == SB_BF16;
    const bool fp16 = p->dtype_a == SB_FP16 || dtype_b == SB_FP16 || p->dtype_out == SB_FP16;
    const cudaStream_t on = (cudaStream_t)stream;
    if (bf16 && fp16)
        return launch_elements(p, g, 0, on);
    return fp16 ? launch_mixture<__half>(p, g, dtype_b, on) : launch_mixture<__nv_bfloat16>(p, g, dtype_b, on);
}
