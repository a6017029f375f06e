/* SPDX-License-Identifier: MIT */
/* D = A B + C with bf16 or fp16 operands on Hopper, and with SwiGLU or its gradients in place of "+ C": the kernel.
 * Launched by matmul16.cu and swiglu_matmul.cu.
 * Tile: 128 rows and N columns of B, half the rows to each of two consumer warpgroups: wgmma 64 x N x 16. For forward
 * SwiGLU B is N/2 rows of gate's weight and the same N/2 of up's, so that a thread has gate and up of one element. Two
 * blocks with neighbouring rows are a cluster: each loads half of B and sends it to both. A step is 64 of k, in 4 stages.
 * When a tile ends, its sums are rounded to pairs (64 registers) and the next tile starts at once; while its products run,
 * a chunk of the waiting tile is computed and stored every few steps. So only what waits at the kernel's end is exposed.
 * N = 256: a step is 1024 clocks of tensor core and 48 KB of loads; registers 128 + 64 + about 45 of 240. */
#pragma once

#include "kernels/cuda/matmul/hopper/matmul16_result.cuh"
#include "kernels/cuda/hopper/wgmma.cuh"

namespace matmul16
{

/* One thread: A for its block, its share of B for both. A stage may be filled when the warps of both are done with it;
 * what the other block sends before this one has said how much it expects is counted all the same. */
template <class S>
__device__ __forceinline__ void produce(const params &p, uint32_t base, int rank, int first, int clusters)
{
    ring<S::STAGES> stage;
    for (int number = first; number < p.tiles; number += clusters) {
        const place at = locate<S>(p, number);
        const int row = at.row + rank * ROWS;
        const int column = at.column + (S::KIND == PLAIN && !S::B_ROWS ? rank * S::B_FIRST : 0);
        for (int i = 0; i < p.steps; i++, stage.next()) {
            const uint32_t a = base + stage.slot * S::STAGE_BYTES, b = a + S::A_BYTES;
            const uint32_t bar = base + S::FULL + 8 * stage.slot;
            mbarrier_wait(base + S::EMPTY + 8 * stage.slot, stage.parity ^ 1);
            mbarrier_expect(bar, S::STAGE_BYTES);
            tma_load_2d(a, &p.a, bar, i * STEP, row);
            if constexpr (S::B_ROWS) {
#pragma unroll
                for (int panel = 0; panel < S::PANELS; panel++)
                    tma_load_2d_to_both(b + panel * S::PANEL_BYTES + rank * (S::PANEL_BYTES / 2), &p.b[0], bar,
                                        column + panel * S::PANEL_COLUMNS, i * STEP + rank * (STEP / 2));
            } else {
                tma_load_2d_to_both(b + rank * S::B_FIRST * ROW_BYTES, &p.b[rank], bar, i * STEP, column);
            }
        }
    }
}

/* A warp's loads of what its chunks read: chunks follow each other through `depth` buffers, over all of its tiles. */
template <class S>
struct operand_ring {
    uint32_t slots, bar; /* addresses of the first buffer's */
    int depth, buffer;   /* which chunk is due */
    uint32_t parity;

    __device__ __forceinline__ int offset(int which) const { return which * S::LOADED * S::SLOT_BYTES; }
    __device__ __forceinline__ void load(const params &p, int which, place at, int chunk) const
    {
        load_chunk<S>(p, slots + offset(which), bar + 8 * which, at.row, at.column + chunk * S::CHUNK);
    }
    __device__ __forceinline__ void next()
    {
        if (++buffer == depth)
            buffer = 0, parity ^= 1;
    }
};

/* Narrow panels have rows of 64 bytes. */
template <class S>
__device__ __forceinline__ uint64_t descriptor_of_b(uint32_t address)
{
    if constexpr (S::B_ROWS && S::PANEL_COLUMNS == 32)
        return wgmma_descriptor_64(address, S::PANEL_BYTES);
    else
        return wgmma_descriptor(address, S::B_ROWS ? S::PANEL_BYTES : 16);
}

template <class T, class S>
__device__ __forceinline__ void consume(const params &p, unsigned char *smem, uint32_t base, int rank, int first,
                                        int clusters)
{
    const int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32, warp_row = rank * ROWS + warp * BOX_ROWS;
    const int slots = S::STAGING + warp * S::WARP_BYTES, lane_place = S::place_of(lane);
    const uint32_t full = base + S::FULL, release_at = cluster_map(base + S::EMPTY, lane & 1);
    const uint64_t a0 = wgmma_descriptor(base + warp / 4 * 64 * ROW_BYTES, 16);
    const uint64_t b0 = descriptor_of_b<S>(base + S::A_BYTES);
    const bool loads = S::KIND == SWIGLU_BACKWARD || (S::WIDE && p.option);
    operand_ring<S> operands = {base + slots, base + S::ARRIVED + 16 * warp,
                                S::KIND == SWIGLU_BACKWARD && p.option ? 1 : 2, 0, 0};
    ring<S::STAGES> stage;
    float d[S::N / 2];
    uint32_t waiting[S::WAITING];
    int newest = 0, before = 0; /* stages of the products started last, and of those ahead of them */

    /* Starts the products of step i of the tile. */
    auto start = [&](int i) {
        constexpr int B_K16 = S::B_ROWS ? 16 * S::PANEL_ROW : 32;
        const uint32_t at = stage.slot * (S::STAGE_BYTES >> 4);
        mbarrier_wait(full + 8 * stage.slot, stage.parity);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < STEP / 16; k++)
            wgmma<T, S::N, 0, S::B_ROWS>(d, a0 + at + (k * 32 >> 4), b0 + at + (k * B_K16 >> 4), i + k != 0);
        wgmma_commit();
        before = newest, newest = stage.slot;
        stage.next();
    };
    auto release = [&](int which) {
        if (lane < CLUSTER) /* one block each */
            mbarrier_arrive_cluster(release_at + 8 * which);
    };
    /* Waits for the products ahead of the newest, of `started` in this tile, and gives their stage back. */
    auto settle = [&](int started) {
        wgmma_wait<1>();
        if (started > 1)
            release(before);
    };
    auto warp_place = [&](int number) {
        const place cluster = locate<S>(p, number);
        return place{cluster.row + warp_row, cluster.column};
    };
    place now = {0, 0}, next = warp_place(first); /* the tile that waits, and the one that is multiplied */
    bool more = true, waits = false;
    /* Chunk c is stored: its buffer takes the chunk `depth` after it, which may be the next tile's. */
    auto refill = [&](int c) {
        const int due = c + operands.depth;
        if (lane != 0 || (due >= S::CHUNKS && !more))
            return;
        tma_store_wait_read();
        operands.load(p, operands.buffer ^ (operands.depth - 1), due < S::CHUNKS ? now : next,
                      due < S::CHUNKS ? due : due - S::CHUNKS);
    };
    auto finish_chunk = [&](int c) {
        int own = slots;
        if (loads) {
            own += operands.offset(operands.buffer);
            mbarrier_wait(operands.bar + 8 * operands.buffer, operands.parity);
        } else {
            if (lane == 0)
                tma_store_wait_read();
            __syncwarp();
        }
        compute_chunk<T, S>(waiting, c, smem + own, lane_place, p.option);
        fence_async_proxy();
        __syncwarp();
        if (lane == 0)
            store_chunk<S>(p, base + own, now.row, now.column + c * S::CHUNK);
        if (loads)
            operands.next();
    };

    for (int number = first;; number += clusters) {
        more = number < p.tiles;
        if (loads && !waits && lane == 0)
            for (int c = 0; c < operands.depth; c++)
                operands.load(p, c, next, c);
        /* A chunk is computed while two steps of products are under way, or none where a tile has few steps. */
        const int steps = more ? p.steps : 0, between = steps / S::CHUNKS;
        int i = 0;
#pragma unroll
        for (int c = 0; c < S::CHUNKS; c++) {
            const bool refills = loads && waits && c > 0;
#pragma unroll 1
            for (int j = 0; j < between; j++) {
                if (j > 0)
                    settle(i);
                start(i++);
                if (refills && j == 0)
                    refill(c - 1);
            }
            if (refills && between == 0)
                refill(c - 1);
            if (waits)
                finish_chunk(c);
            if (between > 0)
                settle(i);
        }
        /* the steps that are left once all chunks are out */
        bool refills = loads && waits;
#pragma unroll 1
        while (i < steps) {
            start(i++);
            if (refills)
                refill(S::CHUNKS - 1), refills = false;
            settle(i);
        }
        if (refills)
            refill(S::CHUNKS - 1);
        /* this tile's sums become the ones that wait */
        const place later = warp_place(number + clusters);
        wgmma_wait<0>();
        if (!more)
            break;
        pin(d);
        release(newest);
        keep_sums<T, S>(waiting, d);
        now = next, next = later, waits = true;
    }
    if (lane == 0)
        tma_store_wait();
}

template <class T, class S>
__global__ void __launch_bounds__(THREADS, 1) matmul16_kernel(const __grid_constant__ params p)
{
    extern __shared__ __align__(1024) unsigned char smem[];
    const uint32_t base = smem_u32(smem);
    const int rank = cluster_rank(), first = blockIdx.x / CLUSTER, clusters = gridDim.x / CLUSTER;
    if (threadIdx.x == 0) {
        tma_prefetch(&p.a);
        tma_prefetch(&p.b[S::B_ROWS ? 0 : rank]);
        for (int s = 0; s < S::STAGES; s++) {
            mbarrier_init(base + S::FULL + 8 * s, 1);
            mbarrier_init(base + S::EMPTY + 8 * s, CLUSTER * WARPS);
        }
        for (int i = 0; i < 2 * WARPS; i++)
            mbarrier_init(base + S::ARRIVED + 8 * i, 1);
        mbarrier_init_fence();
    }
    __syncwarp();
    cluster_sync();
    if (!p.beside)
        wait_for_previous_kernel();
    let_next_kernel_start(); /* what starts during this kernel finds everything before it complete */

    if (threadIdx.x < 128) {
        registers_lower<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0)
            produce<S>(p, base, rank, first, clusters);
        __syncwarp();
    } else {
        registers_raise<CONSUMER_REGISTERS>();
        consume<T, S>(p, smem, base, rank, first, clusters);
        __syncwarp();
    }
    cluster_sync(); /* the other block may still release stages here, or send to them */
    if (p.beside)
        wait_for_previous_kernel(); /* so that the end of this kernel is the end of both */
}

} // namespace matmul16
