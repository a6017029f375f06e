/* Warpgroup MMA of Hopper D[64][N] += A[64][16] B[16][N] with A in registers and B MN-major, N = 64, 80, 96 or 128.
 * Fragments and descriptors are as wgmma.cuh says. */
#ifndef STEPBENCH_FLASH_BACKWARD_WIDE_WGMMA_SM90_CUH
#define STEPBENCH_FLASH_BACKWARD_WIDE_WGMMA_SM90_CUH

#include "kernels/cuda/wgmma_wide.cuh"

namespace sm90
{

/* clang-format off */
#define WGMMA_NAMES_40 WGMMA_TEN_NAMES() ", " WGMMA_TEN_NAMES(1) ", " WGMMA_TEN_NAMES(2) ", " WGMMA_TEN_NAMES(3)
#define WGMMA_NAMES_48 WGMMA_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_SUMS_40 WGMMA_TEN_SUMS(0), WGMMA_TEN_SUMS(1), WGMMA_TEN_SUMS(2), WGMMA_TEN_SUMS(3)
#define WGMMA_SUMS_48 WGMMA_SUMS_40, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), \
    "+f"(d[46]), "+f"(d[47])

#define WGMMA_ADD(TYPE, N, n, a0_, a1_, a2_, a3_, b_, add_)                                                      \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #add_ ", 0;\n"                                             \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" WGMMA_NAMES_##n "}, "      \
                 "{%" #a0_ ", %" #a1_ ", %" #a2_ ", %" #a3_ "}, %" #b_ ", p, 1, 1, 1;\n}\n"                      \
                 : WGMMA_SUMS_##n                                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1))
#define WGMMA_ADD_80(TYPE) WGMMA_ADD(TYPE, 80, 40, 40, 41, 42, 43, 44, 45)
#define WGMMA_ADD_96(TYPE) WGMMA_ADD(TYPE, 96, 48, 48, 49, 50, 51, 52, 53)
/* clang-format on */

template <class T, int N>
__device__ __forceinline__ void wgmma_add(float (&d)[N / 2], const uint32_t *a, uint64_t b)
{
    constexpr bool BF16 = is_bf16<T>::value;
    if constexpr (N == 80) {
        if constexpr (BF16)
            WGMMA_ADD_80("bf16");
        else
            WGMMA_ADD_80("f16");
    } else if constexpr (N == 96) {
        if constexpr (BF16)
            WGMMA_ADD_96("bf16");
        else
            WGMMA_ADD_96("f16");
    } else {
        wgmma<T, N, 1>(d, a, b, 1);
    }
}

} // namespace sm90
#endif
