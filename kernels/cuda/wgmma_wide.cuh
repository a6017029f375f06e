/* Warpgroup MMAs of Hopper wider than wgmma.cuh's: D[64][N] (+)= A[64][16] B[16][N] with N = 160, 192, 200 or 256, both
 * operands from shared memory. Fragments and descriptors are as that header says. */
#ifndef STEPBENCH_WGMMA_WIDE_CUH
#define STEPBENCH_WGMMA_WIDE_CUH

#include "kernels/cuda/wgmma.cuh"

namespace sm90
{

/* clang-format off */

/* Ten accumulators as an instruction names them, and as the compiler gives them: the t-th ten, t empty for the first. */
#define WGMMA_TEN_NAMES(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9"
#define WGMMA_TEN_SUMS(t)                                                                                        \
    "+f"(d[10 * t]), "+f"(d[10 * t + 1]), "+f"(d[10 * t + 2]), "+f"(d[10 * t + 3]), "+f"(d[10 * t + 4]),         \
    "+f"(d[10 * t + 5]), "+f"(d[10 * t + 6]), "+f"(d[10 * t + 7]), "+f"(d[10 * t + 8]), "+f"(d[10 * t + 9])

#define WGMMA_NAMES_80 WGMMA_TEN_NAMES() ", " WGMMA_TEN_NAMES(1) ", " WGMMA_TEN_NAMES(2) ", " WGMMA_TEN_NAMES(3) ", " \
    WGMMA_TEN_NAMES(4) ", " WGMMA_TEN_NAMES(5) ", " WGMMA_TEN_NAMES(6) ", " WGMMA_TEN_NAMES(7)
#define WGMMA_NAMES_96 WGMMA_NAMES_80 ", " WGMMA_TEN_NAMES(8) ", %90, %91, %92, %93, %94, %95"
#define WGMMA_NAMES_100 WGMMA_NAMES_80 ", " WGMMA_TEN_NAMES(8) ", " WGMMA_TEN_NAMES(9)
#define WGMMA_NAMES_128 WGMMA_NAMES_100 ", " WGMMA_TEN_NAMES(10) ", " WGMMA_TEN_NAMES(11) \
    ", %120, %121, %122, %123, %124, %125, %126, %127"

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
#define WGMMA_WIDE_160(TYPE) WGMMA_WIDE(TYPE, 160, 80, 80, 81, 82, 83)
#define WGMMA_WIDE_192(TYPE) WGMMA_WIDE(TYPE, 192, 96, 96, 97, 98, 99)
#define WGMMA_WIDE_200(TYPE) WGMMA_WIDE(TYPE, 200, 100, 100, 101, 102, 103)
#define WGMMA_WIDE_256(TYPE) WGMMA_WIDE(TYPE, 256, 128, 128, 129, 130, 131)
/* clang-format on */

/* A K-major, B by TB (1: MN-major). accumulate 0: D = A B. */
template <class T, int N, int TB>
__device__ __forceinline__ void wgmma_any(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate)
{
    constexpr bool BF16 = is_bf16<T>::value;
    if constexpr (N <= 128) {
        wgmma<T, N, 0, TB>(d, a, b, accumulate);
    } else if constexpr (N == 160) {
        if constexpr (BF16)
            WGMMA_WIDE_160("bf16");
        else
            WGMMA_WIDE_160("f16");
    } else if constexpr (N == 192) {
        if constexpr (BF16)
            WGMMA_WIDE_192("bf16");
        else
            WGMMA_WIDE_192("f16");
    } else if constexpr (N == 200) {
        if constexpr (BF16)
            WGMMA_WIDE_200("bf16");
        else
            WGMMA_WIDE_200("f16");
    } else {
        static_assert(N == 256, "no such wgmma here");
        if constexpr (BF16)
            WGMMA_WIDE_256("bf16");
        else
            WGMMA_WIDE_256("f16");
    }
}

} // namespace sm90
#endif
