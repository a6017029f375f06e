/* SPDX-License-Identifier: MIT */
/* Hopper's own instructions as small functions: mbarrier, TMA, named barriers, clusters, register reallocation.
 * The warpgroup MMA is in wgmma.cuh. Everything here needs sm_90a. */
#pragma once

#include <cuda.h>
#include <stdint.h>

#include "kernels/cuda/primitives/early.cuh"

namespace hopper
{

__device__ __forceinline__ uint32_t smem_u32(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- mbarrier: phase parity starts at 0; waiting on parity p returns once the phase of parity p is complete ---- */
__device__ __forceinline__ void mbarrier_init(uint32_t bar, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
/* Makes the inits visible to the async proxy and the cluster; a __syncthreads must follow. */
__device__ __forceinline__ void mbarrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_expect(uint32_t bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
/* By one lane of a warp, all of which call it and are done with what they have read or written before. Without a branch, for
 * ptxas takes a loop that ends in one for a divergent one, and keeps nothing of it in uniform registers. */
__device__ __forceinline__ void mbarrier_arrive_by_warp(uint32_t bar)
{
    __syncwarp(); /* elect waits for the other lanes, but does not order their reads */
    asm volatile("{\n.reg .pred chosen;\n"
                 "elect.sync _|chosen, 0xffffffff;\n"
                 "@chosen mbarrier.arrive.shared::cta.b64 _, [%0];\n}\n" ::"r"(bar)
                 : "memory");
}
/* Like mbarrier_arrive_by_warp, at a barrier of another block of the cluster: bar is an address from cluster_map. Use it only to
 * release what products have read. It is relaxed: it publishes no writes of this thread, and needs to publish none, since reads
 * that wgmma_wait has waited for cannot be overtaken.
 * (A release to the cluster is a MEMBAR.ALL.GPU, half a microsecond at best.) */
__device__ __forceinline__ void mbarrier_arrive_remote_by_warp(uint32_t bar)
{
    __syncwarp();
    asm volatile("{\n.reg .pred chosen;\n"
                 "elect.sync _|chosen, 0xffffffff;\n"
                 "@chosen mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];\n}\n" ::"r"(bar)
                 : "memory");
}
/* Like mbarrier_arrive_remote_by_warp, but every thread that calls it arrives. */
__device__ __forceinline__ void mbarrier_arrive_remote(uint32_t bar)
{
    asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}
/* On a barrier of any block of the cluster, by its address there (cluster_map). What it orders was only read, by wgmma
 * that is complete: the default scope will do, and a wider one costs a fence of the whole chip. */
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void mbarrier_wait(uint32_t bar, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra ready;\n"
                 "bra again;\n"
                 "ready:\n"
                 "}\n" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}

/* ---- TMA ---- */
__device__ __forceinline__ void tma_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/* One box of a 4-D tensor (d, s, h, b) into shared memory; completes on bar. */
__device__ __forceinline__ void tma_load_4d(uint32_t dst, const CUtensorMap *map, uint32_t bar, int d, int s, int h,
                                            int b)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(dst),
                 "l"(map), "r"(bar), "r"(d), "r"(s), "r"(h), "r"(b)
                 : "memory");
}
/* Into both blocks of a pair, a cluster of two, at the same place of each; completes on the barrier at the same place of each. */
__device__ __forceinline__ void tma_load_4d_both(uint32_t dst, const CUtensorMap *map, uint32_t bar, int d, int s,
                                                 int h, int b)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(dst),
                 "l"(map), "r"(bar), "r"(d), "r"(s), "r"(h), "r"(b), "h"((unsigned short)3)
                 : "memory");
}
/* A word to another block of the cluster; completes 4 bytes on bar there. dst and bar are addresses that cluster_map gave. */
__device__ __forceinline__ void store_remote(uint32_t dst, uint32_t word, uint32_t bar)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(dst), "r"(word),
                 "r"(bar)
                 : "memory");
}
__device__ __forceinline__ void tma_load_2d(uint32_t dst, const CUtensorMap *map, uint32_t bar, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4}], [%2];" ::"r"(dst),
                 "l"(map), "r"(bar), "r"(x), "r"(y)
                 : "memory");
}
/* One box to the same place in both blocks of the cluster; completes on the barrier at the same place in each. */
__device__ __forceinline__ void tma_load_2d_to_both(uint32_t dst, const CUtensorMap *map, uint32_t bar, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(dst),
                 "l"(map), "r"(bar), "r"(x), "r"(y), "h"((unsigned short)3)
                 : "memory");
}
/* Shared memory to shared memory of another block of the cluster: dst and bar are addresses that cluster_map gave, bytes a
 * multiple of 16. Completes on bar there. */
__device__ __forceinline__ void copy_to_block(uint32_t dst, uint32_t src, uint32_t bytes, uint32_t bar)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
        "r"(src), "r"(bytes), "r"(bar)
        : "memory");
}
/* Ordinary shared-memory writes before it are seen by wgmma and TMA after it. */
__device__ __forceinline__ void fence_async_proxy()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- what a lane knows of its warp, told to the compiler ---- */
/* Tells the compiler that x is the same in every lane, which it cannot know of a loaded number. */
__device__ __forceinline__ int uniform(int x)
{
    return __shfl_sync(~0u, x, 0);
}

/* A number in shared memory that another thread will overwrite when this warp gives it back. One lane reads it, which is also
 * the one that arrives (elect.sync chooses it on Hopper): if other lanes had read too, only a warp
 * barrier would order their reads before its arrival, and ptxas drops that barrier where a warp has not diverged, so that
 * compute-sanitizer would call it a race. */
__device__ __forceinline__ int read_uniform(const volatile int &x)
{
    int number = 0;
    if (threadIdx.x % 32 == 0)
        number = x;
    return uniform(number);
}

/* Asked anew: what a job's begin and end derive from it must not be kept in registers all through the steps. */
__device__ __forceinline__ int lane_asked()
{
    int lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

/* ---- named barriers (0 is __syncthreads) ---- */
__device__ __forceinline__ void named_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- clusters ---- */
__device__ __forceinline__ uint32_t cluster_rank()
{
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
__device__ __forceinline__ uint32_t cluster_size()
{
    uint32_t n;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
    return n;
}
/* Waits for every thread of the cluster that has not exited; what they have done in memory before is visible after it. */
__device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}
/* For threads that have nothing to show: releases nothing. */
__device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}
/* Shows what this thread has done with its own block's shared memory, and not what it has done with global memory. A fence
 * and a relaxed arrival release as arrive.release does, but this fence holds only for objects in shared::cta (PTX ISA 8.6,
 * membar/fence), so it waits for no more than the SM: arrive.release is a MEMBAR.ALL.GPU, which waits half a microsecond
 * until stores and additions under way have reached L2. */
__device__ __forceinline__ void cluster_sync_shared()
{
    asm volatile("fence.release.sync_restrict::shared::cta.cluster;" ::: "memory");
    cluster_wait();
}
/* Waits until the other blocks of the cluster have read what they need of this block's shared memory, so that it may exit. `read`
 * depends on everything that this thread has read of theirs. There are no more writes, so only the end of the reads is to be
 * ordered, and a relaxed arrival by itself might overtake loads whose values have not been used yet. The fence above does not
 * order them, for their objects are not in this block's memory (PTX ISA 9.4 has one that does). So the thread stores, to
 * `note` in its own shared memory, a word made of what it read, and releases that: a store that is visible has its value, and
 * so had the loads. */
__device__ __forceinline__ void cluster_leave(uint32_t note, float read)
{
    asm volatile("st.volatile.shared::cta.f32 [%0], %1;" ::"r"(note), "f"(read) : "memory");
    cluster_sync_shared();
}
/* Address of the same shared-memory place in the block of that rank. */
__device__ __forceinline__ uint32_t cluster_map(uint32_t addr, uint32_t rank)
{
    uint32_t r;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(addr), "r"(rank));
    return r;
}
__device__ __forceinline__ float cluster_load(uint32_t addr)
{
    float x;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(addr) : "memory");
    return x;
}
__device__ __forceinline__ float4 cluster_load4(uint32_t addr)
{
    float4 x;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(addr)
                 : "memory");
    return x;
}

/* ---- registers of a warpgroup ---- */
template <int N>
__device__ __forceinline__ void registers_raise()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void registers_lower()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- small arithmetic ---- */
__device__ __forceinline__ float exp2_approx(float x)
{ /* 2 ulp; exp2(-inf) = 0 */
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* A power of two and its inverse. */
struct power_scale {
    float up, down;
};
/* The one that takes a magnitude, given by the bits of its float, to [2^14, 2^15), where fp16 has what it can of what is smaller;
 * for the smallest magnitudes 2^126, so that the inverse is a normal number. */
__device__ __forceinline__ power_scale scale_to_fp16(uint32_t magnitude)
{
    const uint32_t up = min(127 + 14 + 127 - (magnitude >> 23), 253u);
    return {__uint_as_float(up << 23), __uint_as_float((254 - up) << 23)};
}
/* Four powers of two in a register. */
struct packed_powers {
    uint32_t exponents = 0;
    __device__ __forceinline__ void set(int i, float x)
    {
        exponents = (exponents & ~(0xffu << 8 * i)) | __float_as_uint(x) >> 23 << 8 * i;
    }
    __device__ __forceinline__ float at(int i) const { return __uint_as_float((exponents >> 8 * i & 0xff) << 23); }
};
/* The larger of what is in shared memory and x, by one lane for the whole warp. */
__device__ __forceinline__ void raise_by_warp(uint32_t addr, uint32_t x)
{
    asm volatile("{\n.reg .pred chosen;\n"
                 "elect.sync _|chosen, 0xffffffff;\n"
                 "@chosen red.shared::cta.max.u32 [%0], %1;\n}\n" ::"r"(addr),
                 "r"(x)
                 : "memory");
}
/* Sets it to zero. */
__device__ __forceinline__ void clear_by_warp(uint32_t addr)
{
    asm volatile("{\n.reg .pred chosen;\n"
                 "elect.sync _|chosen, 0xffffffff;\n"
                 "@chosen st.shared::cta.u32 [%0], 0;\n}\n" ::"r"(addr)
                 : "memory");
}
/* Adds four floats to global memory, one transaction, order of adders free. */
__device__ __forceinline__ void add_global4(float *p, float a, float b, float c, float d)
{
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(a), "f"(b), "f"(c), "f"(d)
                 : "memory");
}
/* Four 8x8 matrices of 16-bit elements, each transposed on the way to shared memory; lane l gives row l%8 of matrix l/8. */
__device__ __forceinline__ void store_matrix4_transposed(uint32_t addr, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(a), "r"(b),
                 "r"(c), "r"(d)
                 : "memory");
}

} // namespace hopper
