/* SPDX-License-Identifier: MIT */
/* Warpgroup MMAs of Hopper of widths that wgmma.cuh has not: D[64][N] (+)= A[64][16] B[16][N] with N = 40, 48, 96, 160,
 * 192, 200 or 256, both operands from shared memory, and with N = 16, 80, 96, 192 or 256, A from registers. Fragments and
 * descriptors are as that header says. */
#ifndef STEPBENCH_CUDA_HOPPER_WGMMA_WIDE_CUH
#define STEPBENCH_CUDA_HOPPER_WGMMA_WIDE_CUH

#include "kernels/cuda/hopper/wgmma.cuh"

namespace hopper
{

/* clang-format off */

/* Ten accumulators as an instruction names them, and as the compiler gives them: the t-th ten, t empty for the first. */
#define WGMMA_TEN_NAMES(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9"
#define WGMMA_TEN_SUMS(t)                                                                                        \
    "+f"(d[10 * t]), "+f"(d[10 * t + 1]), "+f"(d[10 * t + 2]), "+f"(d[10 * t + 3]), "+f"(d[10 * t + 4]),         \
    "+f"(d[10 * t + 5]), "+f"(d[10 * t + 6]), "+f"(d[10 * t + 7]), "+f"(d[10 * t + 8]), "+f"(d[10 * t + 9])

#define WGMMA_NAMES_20 WGMMA_TEN_NAMES() ", " WGMMA_TEN_NAMES(1)
#define WGMMA_NAMES_24 WGMMA_NAMES_20 ", %20, %21, %22, %23"
#define WGMMA_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_NAMES_40 WGMMA_TEN_NAMES() ", " WGMMA_TEN_NAMES(1) ", " WGMMA_TEN_NAMES(2) ", " WGMMA_TEN_NAMES(3)
#define WGMMA_NAMES_48 WGMMA_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_NAMES_56 WGMMA_NAMES_40 ", " WGMMA_TEN_NAMES(4) ", %50, %51, %52, %53, %54, %55"
#define WGMMA_NAMES_80 WGMMA_TEN_NAMES() ", " WGMMA_TEN_NAMES(1) ", " WGMMA_TEN_NAMES(2) ", " WGMMA_TEN_NAMES(3) ", " \
    WGMMA_TEN_NAMES(4) ", " WGMMA_TEN_NAMES(5) ", " WGMMA_TEN_NAMES(6) ", " WGMMA_TEN_NAMES(7)
#define WGMMA_NAMES_96 WGMMA_NAMES_80 ", " WGMMA_TEN_NAMES(8) ", %90, %91, %92, %93, %94, %95"
#define WGMMA_NAMES_100 WGMMA_NAMES_80 ", " WGMMA_TEN_NAMES(8) ", " WGMMA_TEN_NAMES(9)
#define WGMMA_NAMES_128 WGMMA_NAMES_100 ", " WGMMA_TEN_NAMES(10) ", " WGMMA_TEN_NAMES(11) \
    ", %120, %121, %122, %123, %124, %125, %126, %127"

#define WGMMA_SUMS_20 WGMMA_TEN_SUMS(0), WGMMA_TEN_SUMS(1)
#define WGMMA_SUMS_24 WGMMA_SUMS_20, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define WGMMA_SUMS_8 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define WGMMA_SUMS_40 WGMMA_TEN_SUMS(0), WGMMA_TEN_SUMS(1), WGMMA_TEN_SUMS(2), WGMMA_TEN_SUMS(3)
#define WGMMA_SUMS_48 WGMMA_SUMS_40, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), \
    "+f"(d[46]), "+f"(d[47])
#define WGMMA_SUMS_56 WGMMA_SUMS_40, WGMMA_TEN_SUMS(4), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), \
    "+f"(d[54]), "+f"(d[55])
#define WGMMA_SUMS_80 WGMMA_TEN_SUMS(0), WGMMA_TEN_SUMS(1), WGMMA_TEN_SUMS(2), WGMMA_TEN_SUMS(3), WGMMA_TEN_SUMS(4), \
    WGMMA_TEN_SUMS(5), WGMMA_TEN_SUMS(6), WGMMA_TEN_SUMS(7)
#define WGMMA_SUMS_96 WGMMA_SUMS_80, WGMMA_TEN_SUMS(8), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), \
    "+f"(d[94]), "+f"(d[95])
#define WGMMA_SUMS_100 WGMMA_SUMS_80, WGMMA_TEN_SUMS(8), WGMMA_TEN_SUMS(9)
#define WGMMA_SUMS_128 WGMMA_SUMS_100, WGMMA_TEN_SUMS(10), WGMMA_TEN_SUMS(11), "+f"(d[120]), "+f"(d[121]), \
    "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

/* The operands behind n accumulators: descriptors a and b, whether to add, whether B is MN-major. */
#define WGMMA_WIDE(TYPE, N, n, a_, b_, add_, major_)                                                             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #add_ ", 0;\n"                                             \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" WGMMA_NAMES_##n "}, "      \
                 "%" #a_ ", %" #b_ ", p, 1, 1, 0, %" #major_ ";\n}\n"                                            \
                 : WGMMA_SUMS_##n                                                                                \
                 : "l"(a), "l"(b), "r"(accumulate), "n"(TB))
/* The same with A MN-major, and so B. */
#define WGMMA_WIDE_AT_48(TYPE)                                                                                   \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %26, 0;\n"                                                   \
                 "wgmma.mma_async.sync.aligned.m64n48k16.f32." TYPE "." TYPE " {" WGMMA_NAMES_24 "}, "           \
                 "%24, %25, p, 1, 1, 1, 1;\n}\n"                                                                \
                 : WGMMA_SUMS_24                                                                                 \
                 : "l"(a), "l"(b), "r"(accumulate))
#define WGMMA_WIDE_40(TYPE) WGMMA_WIDE(TYPE, 40, 20, 20, 21, 22, 23)
#define WGMMA_WIDE_48(TYPE) WGMMA_WIDE(TYPE, 48, 24, 24, 25, 26, 27)
#define WGMMA_WIDE_80(TYPE) WGMMA_WIDE(TYPE, 80, 40, 40, 41, 42, 43)
#define WGMMA_WIDE_96(TYPE) WGMMA_WIDE(TYPE, 96, 48, 48, 49, 50, 51)
#define WGMMA_WIDE_112(TYPE) WGMMA_WIDE(TYPE, 112, 56, 56, 57, 58, 59)
#define WGMMA_WIDE_160(TYPE) WGMMA_WIDE(TYPE, 160, 80, 80, 81, 82, 83)
#define WGMMA_WIDE_192(TYPE) WGMMA_WIDE(TYPE, 192, 96, 96, 97, 98, 99)
#define WGMMA_WIDE_200(TYPE) WGMMA_WIDE(TYPE, 200, 100, 100, 101, 102, 103)
#define WGMMA_WIDE_256(TYPE) WGMMA_WIDE(TYPE, 256, 128, 128, 129, 130, 131)

/* The same with A in registers: four of them behind the accumulators. */
#define WGMMA_WIDE_RS(TYPE, N, n, a0_, a1_, a2_, a3_, b_, add_, major_)                                          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #add_ ", 0;\n"                                             \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" WGMMA_NAMES_##n "}, "      \
                 "{%" #a0_ ", %" #a1_ ", %" #a2_ ", %" #a3_ "}, %" #b_ ", p, 1, 1, %" #major_ ";\n}\n"           \
                 : WGMMA_SUMS_##n                                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(TB))
#define WGMMA_WIDE_RS_16(TYPE) WGMMA_WIDE_RS(TYPE, 16, 8, 8, 9, 10, 11, 12, 13, 14)
#define WGMMA_WIDE_RS_80(TYPE) WGMMA_WIDE_RS(TYPE, 80, 40, 40, 41, 42, 43, 44, 45, 46)
#define WGMMA_WIDE_RS_96(TYPE) WGMMA_WIDE_RS(TYPE, 96, 48, 48, 49, 50, 51, 52, 53, 54)
#define WGMMA_WIDE_RS_112(TYPE) WGMMA_WIDE_RS(TYPE, 112, 56, 56, 57, 58, 59, 60, 61, 62)
#define WGMMA_WIDE_RS_192(TYPE) WGMMA_WIDE_RS(TYPE, 192, 96, 96, 97, 98, 99, 100, 101, 102)
#define WGMMA_WIDE_RS_256(TYPE) WGMMA_WIDE_RS(TYPE, 256, 128, 128, 129, 130, 131, 132, 133, 134)
/* clang-format on */

/* A K-major, B by TB (1: MN-major). accumulate 0: D = A B. */
template <class T, int N, int TB>
__device__ __forceinline__ void wgmma_any(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate)
{
    if constexpr (N == 40) {
        WGMMA_TYPED(WGMMA_WIDE_40);
    } else if constexpr (N == 48) {
        WGMMA_TYPED(WGMMA_WIDE_48);
    } else if constexpr (N == 80) {
        WGMMA_TYPED(WGMMA_WIDE_80);
    } else if constexpr (N == 96) {
        WGMMA_TYPED(WGMMA_WIDE_96);
    } else if constexpr (N == 112) {
        WGMMA_TYPED(WGMMA_WIDE_112);
    } else if constexpr (N <= 128) {
        wgmma<T, N, 0, TB>(d, a, b, accumulate);
    } else if constexpr (N == 160) {
        WGMMA_TYPED(WGMMA_WIDE_160);
    } else if constexpr (N == 192) {
        WGMMA_TYPED(WGMMA_WIDE_192);
    } else if constexpr (N == 200) {
        WGMMA_TYPED(WGMMA_WIDE_200);
    } else {
        static_assert(N == 256, "no such wgmma here");
        WGMMA_TYPED(WGMMA_WIDE_256);
    }
}

/* Both MN-major. */
template <class T, int N>
__device__ __forceinline__ void wgmma_transposed(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate)
{
    if constexpr (N == 48)
        WGMMA_TYPED(WGMMA_WIDE_AT_48);
    else
        wgmma<T, N, 1, 1>(d, a, b, accumulate);
}

/* A from registers, B from shared memory by TB. accumulate 0: D = A B. */
template <class T, int N, int TB>
__device__ __forceinline__ void wgmma_any(float (&d)[N / 2], const uint32_t *a, uint64_t b, int accumulate)
{
    if constexpr (N == 32 || N == 64 || N == 128) {
        wgmma<T, N, TB>(d, a, b, accumulate);
    } else if constexpr (N == 16) {
        WGMMA_TYPED(WGMMA_WIDE_RS_16);
    } else if constexpr (N == 80) {
        WGMMA_TYPED(WGMMA_WIDE_RS_80);
    } else if constexpr (N == 96) {
        WGMMA_TYPED(WGMMA_WIDE_RS_96);
    } else if constexpr (N == 112) {
        WGMMA_TYPED(WGMMA_WIDE_RS_112);
    } else if constexpr (N == 192) {
        WGMMA_TYPED(WGMMA_WIDE_RS_192);
    } else {
        static_assert(N == 256, "no such wgmma here");
        WGMMA_TYPED(WGMMA_WIDE_RS_256);
    }
}

} // namespace hopper
#endif
