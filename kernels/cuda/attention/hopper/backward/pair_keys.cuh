/* SPDX-License-Identifier: MIT */
/* A key group of the pair backward: 64 keys, their dK and dV, and every second step's dQ; see
 * pair.cuh. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_PAIR_KEYS_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_PAIR_KEYS_CUH

#include "kernels/cuda/attention/hopper/backward/pair_layout.cuh"
#include "kernels/cuda/attention/hopper/backward/wide_keys.cuh"

namespace flash_sm90
{

/* ORDERED: deterministic; adds in turns, or stores to a sum that the pair has for itself. */
template <class T, int D, bool CAUSAL, bool ORDERED>
struct pair_keys : backward_keys<T, 1, D, PAIR_ROWS, CAUSAL> {
    using keys = backward_keys<T, 1, D, PAIR_ROWS, CAUSAL>;
    using mem = typename keys::mem;
    using tile_ds = typename keys::tile_ds;
    using keys::arrive, keys::dk, keys::dp, keys::dv, keys::p, keys::s, keys::steps, keys::warp, keys::wg;
    const pair_block<D> block;
    const int rank;
    const uint32_t peer; /* where the other block's shared memory begins */

    __device__ __forceinline__ pair_keys(const backward_params &params, pair_block<D> shared, int group)
        : keys(params, shared, group), block(shared), rank(uniform(cluster_rank())),
          peer(uniform(cluster_map(shared.base, rank ^ 1)))
    {
    }

    /* dQ of a step: 64 queries, this block's half of d, the keys of both blocks. */
    __device__ __forceinline__ void start_dq(float (&dq)[mem::DQ], unsigned step)
    {
        mbarrier_wait(block.ds_full(step), block.parity(step));
        wgmma_fence();
        mma_dq_rows<T, tile_ds, D / 2>(dq, block.ds_tile(step), block.own_k(rank), 0);
        mma_dq_rows<T, tile_ds, D / 2>(dq, block.peer_ds(step), block.base + pair_memory<D>::PEER_K, 1);
        wgmma_commit();
    }
    /* For the step after the next one, if there is one: a block may exit when nothing more comes to it. */
    __device__ __forceinline__ void release_ds(unsigned step)
    {
        if (step + 2 >= (unsigned)steps)
            return;
        arrive(block.ds_empty(step));
        mbarrier_arrive_remote_by_warp(peer + (block.ds_empty(step) - block.base));
    }
    __device__ __forceinline__ void add_dq(const float (&dq)[mem::DQ], unsigned step, int place)
    {
        if constexpr (ORDERED)
            keys::add_dq(dq, step, place, rank);
        else
            keys::add_to(this->sum_at(place, rank), dq);
    }

    /* All steps, in the order of backward_walk. */
    __device__ __forceinline__ void run()
    {
        const int begin = uniform(this->job().query_begin), end = p.query_blocks - 1;
        const bool back = ORDERED && p.turn && uniform(this->job().adder) >= p.early;
        const int stores_before = ORDERED ? uniform(this->job().stores_before) : 0;
        const int first = back ? end : begin, last = back ? begin : end, by = back ? -1 : 1;
        int u = first, place_before = 0;
        int place = uniform(this->job().b * p.heads + this->job().h_kv * p.group) * p.query_blocks + first +
                    (ORDERED ? uniform(this->job().sum_begin) : 0);
        for (unsigned step = 0; step < (unsigned)steps; step++) {
            uint32_t prob[1][PAIR_ROWS / 4], ds[1][PAIR_ROWS / 4];
            this->start_scores(step);
            this->start_dp(step);
            this->load_lse(step);
            wgmma_wait<1>();
            pin(s);
            this->probabilities(step, u * PAIR_ROWS);
            to_operand<T, 1, PAIR_ROWS / 4>(prob, s);
            pin(prob[0]); /* not later, when dP is waited for */
            wgmma_wait<0>();
            pin(dp);
            this->gradient(step);
            to_operand<T, 1, PAIR_ROWS / 4>(ds, dp);
            mbarrier_wait(block.ds_empty(step), block.parity(step) ^ 1);
            this->store_ds(ds, step);
            arrive(block.ds_stored(step));
            this->start_dv(prob, step);
            if (step > 0 && (step - 1) % 2 == wg) {
                float dq[mem::DQ];
                start_dq(dq, step - 1);
                this->start_dk(ds, step);
                wgmma_wait<1>();
                pin(dv);
                pin(dq);
                release_ds(step - 1);
                add_dq(dq, step - 1, place_before);
            } else {
                this->start_dk(ds, step);
            }
            wgmma_wait<0>();
            pin(dv);
            pin(dk);
            arrive(block.empty(step));
            place_before = u < stores_before ? ~place : place;
            if (u == last)
                u = first, place += end + 1 - last + first; /* the next query head */
            else
                u += by, place += by;
        }
        if (steps > 0 && (steps - 1) % 2 == wg) {
            float dq[mem::DQ];
            start_dq(dq, steps - 1);
            wgmma_wait<0>();
            pin(dq);
            add_dq(dq, steps - 1, place_before);
        }
    }
};

} // namespace flash_sm90
#endif
