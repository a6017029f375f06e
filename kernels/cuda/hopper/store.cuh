/* SPDX-License-Identifier: MIT */
/* The way out of a Hopper kernel: fragments to swizzled shared memory by stmatrix, from there to a tensor by TMA, and
 * flags for other blocks. */
#pragma once

#include "kernels/cuda/hopper/tile.cuh"

namespace hopper
{

/* Four 8x8 matrices of 16-bit elements between registers and shared memory; lane l gives row l%8 of matrix l/8. */
__device__ __forceinline__ void store_matrix4(uint32_t addr, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(a), "r"(b), "r"(c),
                 "r"(d)
                 : "memory");
}
__device__ __forceinline__ void load_matrix4(uint32_t addr, uint32_t (&r)[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr)
                 : "memory");
}

/* A warp's 16 rows of accumulators, times `above` in the first eight and `below` in the others, as 16-bit numbers to swizzled
 * panels of 64 columns. corner: address of the first row, a multiple of 8 rows from the panel's begin. */
template <class T, int COLUMNS, int PANEL_BYTES>
__device__ __forceinline__ void store_warp_rows16(uint32_t corner, const float (&x)[COLUMNS / 2], float above,
                                                  float below, int lane)
{
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j += 2)
        store_matrix4(corner + j / 8 * PANEL_BYTES + lane % 16 * ROW_BYTES + ((j % 8 + lane / 16) ^ lane % 8) * 16,
                      pack(T(), x[4 * j] * above, x[4 * j + 1] * above),
                      pack(T(), x[4 * j + 2] * below, x[4 * j + 3] * below),
                      pack(T(), x[4 * j + 4] * above, x[4 * j + 5] * above),
                      pack(T(), x[4 * j + 6] * below, x[4 * j + 7] * below));
}

/* One box of shared memory to a 4-D tensor (d, s, h, b); what is outside the tensor is not written. The writers of the
 * box must have called fence_async_proxy, and this warp must know that they have. All of a warp call it, and one thread stores.
 * There is no branch: if only one lane stored inside a loop, ptxas would take the loop for a divergent one and keep nothing of it in
 * uniform registers. */
__device__ __forceinline__ void tma_store_4d_by_warp(uint32_t src, const CUtensorMap *map, int d, int s, int h, int b)
{
    asm volatile(
        "{\n.reg .pred chosen;\n"
        "elect.sync _|chosen, 0xffffffff;\n"
        "@chosen cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];\n}\n" ::"l"(map),
        "r"(src), "r"(d), "r"(s), "r"(h), "r"(b)
        : "memory");
}
/* Stores a tile of a 2-D tensor at (x, y); one thread calls it. */
__device__ __forceinline__ void tma_store_2d(const CUtensorMap *map, uint32_t src, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(src),
                 "r"(x), "r"(y)
                 : "memory");
}
/* This thread's stores so far are one group. */
__device__ __forceinline__ void tma_store_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Waits until stores have read their shared memory, except those of the latest PENDING groups. */
template <int PENDING = 0>
__device__ __forceinline__ void tma_store_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
/* Until the tensor is written. */
__device__ __forceinline__ void tma_store_wait()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* ---- a flag in global memory, between blocks ---- */
/* What its writer had seen or written before it stored this number is there for this thread. */
__device__ __forceinline__ uint32_t load_acquire(const uint32_t *p)
{
    uint32_t x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}
__device__ __forceinline__ void store_release(uint32_t *p, uint32_t x)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

} // namespace hopper
