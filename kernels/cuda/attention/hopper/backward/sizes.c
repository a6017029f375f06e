/* SPDX-License-Identifier: MIT */
/* The cut of a problem by the Hopper backward: tiles of keys, steps of queries, sections of heads that fit in L2. */
#include "kernels/cuda/attention/hopper/backward/sizes.h"

int flash_backward_key_tiles(const sb_attention *a)
{
    return (a->seq_k + FLASH_BACKWARD_KEYS - 1) / FLASH_BACKWARD_KEYS;
}

int flash_backward_most_sums(const sb_attention *a, flash_backward_kernel kernel)
{
    const int key_tiles = flash_backward_key_tiles(a);
    return kernel == FLASH_BACKWARD_NARROW ? 1 : kernel == FLASH_BACKWARD_PAIR ? (key_tiles + 1) / 2 : key_tiles;
}

int flash_backward_step_rows(const sb_attention *a)
{
    return (a->head_dim <= 64 ? 128 : 64) / (a->dtype == SB_FP32 ? 2 : 1);
}

int flash_backward_padded_dim(const sb_attention *a)
{
    const int d = a->head_dim;
    return d <= 64 ? 64 : a->dtype == SB_FP32 || d > 96 ? 128 : d > 80 ? 96 : 80;
}

int64_t flash_backward_query_bytes(const sb_attention *a, int sums)
{
    const int64_t row = 2 * a->head_dim * (a->dtype == SB_FP32 ? 4 : 2) + sums * flash_backward_padded_dim(a) * 4;
    return row * a->seq_q * (a->heads / a->heads_kv);
}

/* Their Q, dO and dQ sums fit in about two thirds of L2. */
int flash_backward_wide_section(const sb_attention *a)
{
    const int64_t fit = (40 << 20) / flash_backward_query_bytes(a, 1), all = (int64_t)a->batch * a->heads_kv;
    return (int)(fit < 1 ? 1 : fit < all ? fit : all);
}

/* A section of heads makes about two jobs for each block: what it reads and adds to is then still in L2 when the next key
 * tile of a head comes (about 20 MB), and its long jobs are done when the chip runs out of short ones. Long rows of adders
 * in order get four, so that a tile and the next one of its head begin farther apart. */
int flash_backward_narrow_section(const sb_attention *a, int sms, bool in_order)
{
    const int key_tiles = flash_backward_key_tiles(a), all = a->batch * a->heads_kv;
    const int section = (in_order && key_tiles > 8 ? 4 : 2) * ((sms + key_tiles - 1) / key_tiles);
    return section < all ? section : all;
}
