/* SPDX-License-Identifier: MIT */
/* The query group of the narrow backward: dQ^T = K^T dS^T of both key groups' keys, added up over the key tiles; and the
 * two sides of taking turns. See narrow.cuh. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_NARROW_QUERIES_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_NARROW_QUERIES_CUH

#include "kernels/cuda/attention/hopper/backward/narrow_layout.cuh"
#include "kernels/cuda/attention/hopper/backward/pointwise.cuh"

namespace flash_sm90
{

/* dQ^T: 64 rows of d times 64 queries, A = K^T read transposed, B = dS of both groups. */
template <class T>
__device__ __forceinline__ void narrow_mma_dq(float (&dq)[32], uint32_t k_tile, uint32_t ds_tile)
{
    const uint64_t a = wgmma_descriptor(k_tile, 16), b = wgmma_descriptor(ds_tile, 16);
#pragma unroll
    for (int k = 0; k < NARROW_KEYS / 16; k++)
        wgmma<T, 64, 1, 0>(dq, a + (k * 16 * ROW_BYTES >> 4),
                           b + ((k / 4 * narrow_memory::tile_ds::PANEL_BYTES + k % 4 * 32) >> 4), k != 0);
}

enum { QUERY_BARRIER = 1 };

/* The query group has added a step: notes it for the thread that gives the turn on. */
__device__ __forceinline__ void narrow_tell(narrow_block block, unsigned step, int64_t place, int next)
{
    if (uniform(threadIdx.x % 128 / 32) == 0) {
        mbarrier_wait(block.reported(step), block.step_parity(step) ^ 1);
        if (threadIdx.x % 32 == 0)
            block.report(step)->place = place, block.report(step)->next = next;
    }
    __syncwarp(); /* this warp has added; the lane that wrote arrives */
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(block.added(step));
}

/* dQ of a query block whose other key tiles have been added before: with their sum, if there are others, to the tensor,
 * by way of the slot of dS, which is free for it. */
template <class T>
__device__ __forceinline__ void narrow_finish_dq(const narrow_params &p, float (&dq)[32], const float *others,
                                                 uint32_t slot, int query, int h, int b)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    if (others) {
#pragma unroll
        for (int half = 0; half < 32; half += 16) {
            float4 x[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                x[j] = __ldcg((const float4 *)(others + (half / 4 + j) * 512));
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float *const to = dq + half + 4 * j;
                to[0] += x[j].x, to[1] += x[j].y, to[2] += x[j].z, to[3] += x[j].w;
            }
        }
    }
    /* rows of the fragments are columns of the tensor */
    const uint32_t place = slot + transposed_place(warp, lane);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t x[4];
#pragma unroll
        for (int e = 0; e < 4; e++)
            x[e] = pack(T(), dq[8 * k + 2 * e] * p.scale, dq[8 * k + 2 * e + 1] * p.scale);
        store_matrix4_transposed(place + k * 16 * ROW_BYTES, x[0], x[1], x[2], x[3]);
    }
    fence_async_proxy();
    named_sync(QUERY_BARRIER, 128);
    if (uniform(warp) == 0) {
        tma_store_4d_by_warp(slot, &p.dq_map, 0, query, h, b);
        tma_store_commit();
        tma_store_wait_read();
    }
    __syncwarp();
}

/* Of one step. `place` is its query block's number among all. */
template <class T, bool CAUSAL>
__device__ __forceinline__ void narrow_add(const narrow_params &p, narrow_block block, unsigned step, float (&dq)[32],
                                           int64_t place, int key_tile, int i, int h, int b)
{
    const int thread = threadIdx.x % 128, last_query = i * NARROW_ROWS + NARROW_ROWS - 1 + p.seq_k - p.seq_q;
    const int last_tile = CAUSAL ? min(last_query / NARROW_KEYS, p.key_tiles - 1) : p.key_tiles - 1;
    const bool last = p.turn && key_tile == last_tile;
    float *const sum = p.dq_sum + place * (NARROW_ROWS * 64) + thread * 4;
    if (p.turn)
        mbarrier_wait(block.turn_here(step), block.step_parity(step));
    if (last) {
        named_sync(QUERY_BARRIER, 128); /* the products of every warp have read dS */
        narrow_finish_dq<T>(p, dq, key_tile > 0 ? sum : nullptr, block.ds_tile(step), i * NARROW_ROWS, h, b);
    }
    if (thread % 32 == 0)
        mbarrier_arrive(block.ds_empty(step));
    if (!p.turn || (key_tile > 0 && !last)) {
#pragma unroll
        for (int j = 0; j < 8; j++)
            add_global4(sum + j * 512, dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
    } else if (!last) { /* the first */
#pragma unroll
        for (int j = 0; j < 8; j++)
            *(float4 *)(sum + j * 512) = make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
    }
    if (p.turn)
        narrow_tell(block, step, last ? -1 : place, key_tile + 1);
}

template <class T, bool CAUSAL>
__device__ __forceinline__ void narrow_queries(const narrow_params &p, narrow_block block)
{
    const int thread = threadIdx.x % 128;
    unsigned step = 0;
    for (unsigned n = 0;; n++) {
        mbarrier_wait(block.kv_full(n), block.job_parity(n));
        volatile narrow_job *const job = block.job_slot(n);
        if (read_uniform(job->b) < 0)
            break;
        const int begin = read_uniform(job->query_begin);
        const int b = read_uniform(job->b), key_tile = read_uniform(job->key_first) / NARROW_KEYS;
        int h = read_uniform(job->h_kv) * p.group, i = p.query_blocks - 1;
        for (int left = (p.query_blocks - begin) * p.group; left > 0; left--, step++) {
            float dq[32];
            mbarrier_wait(block.ds_full(step), block.step_parity(step));
            wgmma_fence();
            narrow_mma_dq<T>(dq, block.k_tile(n), block.ds_tile(step));
            wgmma_commit();
            const int64_t place = ((int64_t)b * p.heads + h) * p.block_stride + i;
            wgmma_wait<0>();
            pin(dq);
            narrow_add<T, CAUSAL>(p, block, step, dq, place, key_tile, i, h, b);
            if (--i < begin)
                i = p.query_blocks - 1, h++;
        }
        __syncwarp();
        if (thread % 32 == 0)
            mbarrier_arrive(block.kv_empty(n));
    }
    if (p.turn) {
        narrow_tell(block, step, -1, -1);
        narrow_tell(block, step + 1, -1, -1);
    }
    tma_store_wait();
}

/* ---- turns: asking and telling take as long as a step, so each has a thread of its own ---- */

/* Tells the query group when the turn of each of its steps has come. */
__device__ __forceinline__ void narrow_watch(const narrow_params &p, narrow_block block)
{
    unsigned step = 0;
    for (unsigned n = 0;; n++) {
        mbarrier_wait(block.kv_full(n), block.job_parity(n));
        volatile narrow_job *const job = block.job_slot(n);
        if (job->b < 0)
            return;
        const int begin = job->query_begin, key_tile = job->key_first / NARROW_KEYS, h = job->h_kv * p.group;
        const uint32_t *const first = p.turn + ((int64_t)job->b * p.heads + h) * p.block_stride;
        for (int g = 0; g < p.group; g++)
#pragma unroll 1
            for (int i = p.query_blocks - 1; i >= begin; i--, step++) {
                mbarrier_wait(block.ds_empty(step), block.step_parity(step) ^ 1); /* it has used the slot's last turn */
                while (load_acquire(first + (int64_t)g * p.block_stride + i) != key_tile)
                    __nanosleep(20);
                mbarrier_arrive(block.turn_here(step));
            }
    }
}

/* Gives the turn of every second step on, once what was added is there for whoever has it next. */
__device__ __forceinline__ void narrow_report_turns(const narrow_params &p, narrow_block block, unsigned step)
{
    for (;; step += 2) {
        mbarrier_wait(block.added(step), block.step_parity(step));
        volatile narrow_report *const report = block.report(step);
        const int next = report->next;
        const int64_t place = report->place;
        if (next < 0)
            return;
        if (place >= 0)
            store_release(p.turn + place, next);
        mbarrier_arrive(block.reported(step));
    }
}

} // namespace flash_sm90
#endif
