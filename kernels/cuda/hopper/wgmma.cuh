/* SPDX-License-Identifier: MIT */
/* Warpgroup MMA of Hopper: D[64][N] (+)= A[64][16] B[16][N], fp32 accumulators, bf16 or fp16 operands.
 *
 * Fragments: thread t of the group (warp w = t/32, g = t%32/4, q = t%4) holds of D, for each 8 columns j,
 * d[4j+{0,1}] = row 16w+g, columns 8j+2q+{0,1} and d[4j+{2,3}] = the same columns of row 16w+g+8. An A operand in registers is
 * four pairs: (g, 2q..), (g+8, 2q..), (g, 2q+8..), (g+8, 2q+8..): accumulators of two neighbouring column groups,
 * rounded to pairs, are exactly that.
 *
 * Shared-memory operands are panels of 64 elements (128 bytes) a row, 128-byte swizzle, 1024-byte aligned. The two uses:
 * K-major, rows are M or N and the panel runs along k: k16 steps advance 32 bytes inside the panel;
 * MN-major ("transposed"), rows are k and the panel runs along M or N: k16 steps advance 16 rows = 2048 bytes.
 * PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions". */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace hopper
{

/* Matrix descriptor with 128-byte swizzle. panel_bytes: distance between 64-element panels, used only by MN-major
 * operands wider than one panel; 8 rows are 1024 bytes apart in every use. */
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t smem_addr, uint32_t panel_bytes)
{
    return (uint64_t)((smem_addr & 0x3FFFF) >> 4) | (uint64_t)(panel_bytes >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
           1ull << 62;
}
/* Matrix descriptor with 64-byte swizzle: panels have 32 elements in a row, and 8 rows are 512 bytes apart. */
__device__ __forceinline__ uint64_t wgmma_descriptor_64(uint32_t smem_addr, uint32_t panel_bytes)
{
    return (uint64_t)((smem_addr & 0x3FFFF) >> 4) | (uint64_t)(panel_bytes >> 4) << 16 | (uint64_t)(512 >> 4) << 32 |
           2ull << 62;
}

__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most PENDING of the committed groups are still running. */
template <int PENDING>
__device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
/* Keeps the compiler from moving uses of these registers across this point: it knows nothing of MMAs in flight. */
template <int N>
__device__ __forceinline__ void pin(float (&r)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(r[i])::"memory");
}
template <int N>
__device__ __forceinline__ void pin(uint32_t (&r)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(r[i])::"memory");
}

template <class T>
struct is_bf16 {
    static constexpr bool value = false;
};
template <>
struct is_bf16<__nv_bfloat16> {
    static constexpr bool value = true;
};

/* clang-format off */

/* The first n accumulators, half as many as the product has columns: as the instruction names them ... */
#define WGMMA_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_NAMES_16 WGMMA_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_NAMES_20 WGMMA_NAMES_16 ", %16, %17, %18, %19"
#define WGMMA_NAMES_24 WGMMA_NAMES_20 ", %20, %21, %22, %23"
#define WGMMA_NAMES_32 WGMMA_NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAMES_40 WGMMA_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_NAMES_48 WGMMA_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_NAMES_56 WGMMA_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define WGMMA_NAMES_64 WGMMA_NAMES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_NAMES_80 WGMMA_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_NAMES_96 WGMMA_NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_NAMES_100 WGMMA_NAMES_96 ", %96, %97, %98, %99"
#define WGMMA_NAMES_128 WGMMA_NAMES_100 ", %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, " \
    "%114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/* ... and as the compiler gives them. */
#define WGMMA_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WGMMA_EIGHT(i) WGMMA_FOUR(i), WGMMA_FOUR(i + 4)
#define WGMMA_SUMS_8 WGMMA_EIGHT(0)
#define WGMMA_SUMS_16 WGMMA_SUMS_8, WGMMA_EIGHT(8)
#define WGMMA_SUMS_20 WGMMA_SUMS_16, WGMMA_FOUR(16)
#define WGMMA_SUMS_24 WGMMA_SUMS_20, WGMMA_FOUR(20)
#define WGMMA_SUMS_32 WGMMA_SUMS_24, WGMMA_EIGHT(24)
#define WGMMA_SUMS_40 WGMMA_SUMS_32, WGMMA_EIGHT(32)
#define WGMMA_SUMS_48 WGMMA_SUMS_40, WGMMA_EIGHT(40)
#define WGMMA_SUMS_56 WGMMA_SUMS_48, WGMMA_EIGHT(48)
#define WGMMA_SUMS_64 WGMMA_SUMS_56, WGMMA_EIGHT(56)
#define WGMMA_SUMS_80 WGMMA_SUMS_64, WGMMA_EIGHT(64), WGMMA_EIGHT(72)
#define WGMMA_SUMS_96 WGMMA_SUMS_80, WGMMA_EIGHT(80), WGMMA_EIGHT(88)
#define WGMMA_SUMS_100 WGMMA_SUMS_96, WGMMA_FOUR(96)
#define WGMMA_SUMS_128 WGMMA_SUMS_100, WGMMA_EIGHT(100), WGMMA_EIGHT(108), WGMMA_EIGHT(116), WGMMA_FOUR(124)

/* One instruction. Parameters that end in _ are the numbers of its operands, which follow the n accumulators. */
#define WGMMA_SS_TYPED(TYPE, COLUMNS, n, a_, b_, add_, ta_, tb_)                                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #add_ ", 0;\n"                                             \
                 "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." TYPE "." TYPE " {" WGMMA_NAMES_##n "}, " \
                 "%" #a_ ", %" #b_ ", p, 1, 1, %" #ta_ ", %" #tb_ ";\n}\n"                                       \
                 : WGMMA_SUMS_##n                                                                                \
                 : "l"(a), "l"(b), "r"(accumulate), "n"(TA), "n"(TB))
#define WGMMA_RS_TYPED(TYPE, COLUMNS, n, a0_, a1_, a2_, a3_, b_, add_, tb_)                                      \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #add_ ", 0;\n"                                             \
                 "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." TYPE "." TYPE " {" WGMMA_NAMES_##n "}, " \
                 "{%" #a0_ ", %" #a1_ ", %" #a2_ ", %" #a3_ "}, %" #b_ ", p, 1, 1, %" #tb_ ";\n}\n"              \
                 : WGMMA_SUMS_##n                                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(TB))

/* Issues the instruction, for operands of type T, if the product has this number of columns. */
#define WGMMA_IF(FORM, COLUMNS, ...)                                                                             \
    if constexpr (N == COLUMNS && is_bf16<T>::value)                                                             \
        WGMMA_##FORM##_TYPED("bf16", COLUMNS, __VA_ARGS__);                                                      \
    else if constexpr (N == COLUMNS)                                                                             \
        WGMMA_##FORM##_TYPED("f16", COLUMNS, __VA_ARGS__)
/* clang-format on */

template <int N, int... COLUMNS>
constexpr bool wgmma_is_one_of = ((N == COLUMNS) || ...);

/* A and B from shared memory. TA, TB: 1 when that operand is MN-major. accumulate 0: D = A B. */
template <class T, int N, int TA, int TB>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate)
{
    static_assert(wgmma_is_one_of<N, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 200, 256>, "no such wgmma here");
    WGMMA_IF(SS, 32, 16, 16, 17, 18, 19, 20);
    WGMMA_IF(SS, 40, 20, 20, 21, 22, 23, 24);
    WGMMA_IF(SS, 48, 24, 24, 25, 26, 27, 28);
    WGMMA_IF(SS, 64, 32, 32, 33, 34, 35, 36);
    WGMMA_IF(SS, 80, 40, 40, 41, 42, 43, 44);
    WGMMA_IF(SS, 96, 48, 48, 49, 50, 51, 52);
    WGMMA_IF(SS, 112, 56, 56, 57, 58, 59, 60);
    WGMMA_IF(SS, 128, 64, 64, 65, 66, 67, 68);
    WGMMA_IF(SS, 160, 80, 80, 81, 82, 83, 84);
    WGMMA_IF(SS, 192, 96, 96, 97, 98, 99, 100);
    WGMMA_IF(SS, 200, 100, 100, 101, 102, 103, 104);
    WGMMA_IF(SS, 256, 128, 128, 129, 130, 131, 132);
}

/* A from registers, B from shared memory. */
template <class T, int N, int TB>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], const uint32_t *a, uint64_t b, int accumulate)
{
    static_assert(wgmma_is_one_of<N, 16, 32, 64, 80, 96, 112, 128, 192, 256>, "no such wgmma here");
    WGMMA_IF(RS, 16, 8, 8, 9, 10, 11, 12, 13, 14);
    WGMMA_IF(RS, 32, 16, 16, 17, 18, 19, 20, 21, 22);
    WGMMA_IF(RS, 64, 32, 32, 33, 34, 35, 36, 37, 38);
    WGMMA_IF(RS, 80, 40, 40, 41, 42, 43, 44, 45, 46);
    WGMMA_IF(RS, 96, 48, 48, 49, 50, 51, 52, 53, 54);
    WGMMA_IF(RS, 112, 56, 56, 57, 58, 59, 60, 61, 62);
    WGMMA_IF(RS, 128, 64, 64, 65, 66, 67, 68, 69, 70);
    WGMMA_IF(RS, 192, 96, 96, 97, 98, 99, 100, 101, 102);
    WGMMA_IF(RS, 256, 128, 128, 129, 130, 131, 132, 133, 134);
}

/* D[64][128] (+)= A[64][32] B[32][128] of codes in shared memory, both K-major: B is e4m3, A too or e5m2. A panel is 128 codes, and
 * k32 steps advance 32 bytes inside it. accumulate 0: D = A B. */
template <bool A_E5M2>
__device__ __forceinline__ void wgmma_codes(float (&d)[64], uint64_t a, uint64_t b, int accumulate)
{
/* clang-format off */
#define WGMMA_CODES(TYPE)                                                                                        \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                   \
                 "wgmma.mma_async.sync.aligned.m64n128k32.f32." TYPE ".e4m3 {" WGMMA_NAMES_64 "}, "              \
                 "%64, %65, p, 1, 1;\n}\n"                                                                       \
                 : WGMMA_SUMS_64                                                                                 \
                 : "l"(a), "l"(b), "r"(accumulate))
    /* clang-format on */
    if constexpr (A_E5M2)
        WGMMA_CODES("e5m2");
    else
        WGMMA_CODES("e4m3");
}

} // namespace hopper
