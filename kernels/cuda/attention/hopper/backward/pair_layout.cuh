/* SPDX-License-Identifier: MIT */
/* Shared memory and barriers that a block of the pair backward has besides those of the wide one; see
 * pair.cuh. */
#ifndef STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_PAIR_LAYOUT_CUH
#define STEPBENCH_CUDA_ATTENTION_HOPPER_BACKWARD_PAIR_LAYOUT_CUH

#include "kernels/cuda/attention/hopper/backward/wide_layout.cuh"
#include "kernels/kernels.h"

namespace flash_sm90
{

constexpr int PAIR_ROWS = 64;

template <int D>
struct pair_memory : backward_memory<1, D, PAIR_ROWS> {
    using block_memory = backward_memory<1, D, PAIR_ROWS>;
    using tile_half = tile<1, BACKWARD_KEYS, 64>; /* K of a block, this block's half of d */
    static constexpr int PEER_K = (block_memory::BYTES + 1023) / 1024 * 1024;
    static constexpr int PEER_DS = PEER_K + tile_half::BYTES; /* what the other block sends */
    static constexpr int PAIR_BARRIERS = PEER_DS + BACKWARD_STAGES * block_memory::tile_ds::BYTES;
    static constexpr int BYTES = PAIR_BARRIERS + 3 * BACKWARD_STAGES * 8;
    static_assert(BYTES <= 227 << 10, "what a block may have");
};

template <int D>
struct pair_block : backward_block<backward_memory<1, D, PAIR_ROWS>> {
    using mem = pair_memory<D>;
    using wide = backward_block<backward_memory<1, D, PAIR_ROWS>>;
    __device__ __forceinline__ pair_block(const wide &block) : wide(block) {}

    __device__ uint32_t pair_barrier(unsigned step, int kind) const
    {
        return this->base + mem::PAIR_BARRIERS + 8 * (kind * BACKWARD_STAGES + this->slot(step));
    }
    /* All of this block have stored dS; the dS of both blocks is here; dQ has read it, here and in the other block. */
    __device__ uint32_t ds_stored(unsigned step) const { return pair_barrier(step, 0); }
    __device__ uint32_t ds_full(unsigned step) const { return pair_barrier(step, 1); }
    __device__ uint32_t ds_empty(unsigned step) const { return pair_barrier(step, 2); }
    __device__ uint32_t peer_ds(unsigned step) const
    {
        return this->base + mem::PEER_DS + this->slot(step) * mem::tile_ds::BYTES;
    }
    /* K of this block from its half of d on: a panel of K, or the tile that the wide kernel has for its second group. */
    __device__ uint32_t own_k(int rank) const
    {
        return this->base + (mem::HAS_K2 ? mem::K2 : mem::K + rank * mem::tile_kv::PANEL_BYTES);
    }

    /* By one thread, before the cluster's first meeting. */
    __device__ void init_pair_barriers() const
    {
        for (int step = 0; step < BACKWARD_STAGES; step++) {
            mbarrier_init(ds_stored(step), 8);
            mbarrier_init(ds_full(step), 1);
            mbarrier_init(ds_empty(step), 8); /* four warps here and four there */
        }
    }
};

} // namespace flash_sm90

/* The main kernel of pair.cuh, with the wide kernel's parameters. */
sb_status flash_backward_pair_launch(const flash_sm90::backward_params &p, const sb_attention *a, cudaStream_t stream);

#endif
