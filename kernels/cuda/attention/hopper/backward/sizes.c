/* SPDX-License-Identifier: MIT */
/* The cut of a problem by the Hopper backward: tiles of keys, steps of queries, sections of heads that fit in L2. */
#include "kernels/cuda/attention/hopper/backward/sizes.h"

#include "kernels/shared/internal.h"

int flash_backward_tile_keys(const sb_attention *a, flash_backward_kernel kernel)
{
    if (sb_head_dim_most(a) <= 128 || flash_backward_large_columns(a).v == 128)
        return FLASH_BACKWARD_KEYS;
    return kernel == FLASH_BACKWARD_TALL ? FLASH_BACKWARD_TALL_KEYS : FLASH_BACKWARD_LARGE_KEYS;
}

int flash_backward_key_tiles(const sb_attention *a, flash_backward_kernel kernel)
{
    const int keys = flash_backward_tile_keys(a, kernel);
    return (a->seq_k + keys - 1) / keys;
}

int flash_backward_most_sums(const sb_attention *a, flash_backward_kernel kernel)
{
    const int key_tiles = flash_backward_key_tiles(a, kernel);
    return kernel == FLASH_BACKWARD_NARROW ? 1 : kernel == FLASH_BACKWARD_PAIR ? (key_tiles + 1) / 2 : key_tiles;
}

int flash_backward_step_rows(const sb_attention *a)
{
    return (sb_head_dim_most(a) <= 64 ? 128 : 64) / (flash_in_parts(a) ? 2 : 1);
}

bool flash_backward_is_staged(const sb_attention *a)
{
    return a->head_dim == 64 && !flash_in_parts(a) && !a->deterministic;
}

flash_backward_columns flash_backward_large_columns(const sb_attention *a)
{
    if (sb_head_dim_most(a) > 192)
        return (flash_backward_columns){256, 256};
    return (flash_backward_columns){192, sb_head_dim_v(a) > 128 ? 192 : 128};
}

bool flash_backward_tall_takes(const sb_attention *a)
{
    return sb_head_dim_v(a) > 128 && sb_head_dim_most(a) <= 192 && !a->windowed && !a->packed;
}

int flash_backward_padded_dim(const sb_attention *a)
{
    const int d = a->head_dim;
    if (sb_head_dim_most(a) > 128)
        return flash_backward_large_columns(a).qk;
    return d <= 64 ? 64 : flash_in_parts(a) || a->windowed || a->packed || d > 96 ? 128 : d > 80 ? 96 : 80;
}

int64_t flash_backward_query_bytes(const sb_attention *a, int sums)
{
    const int64_t row =
        (a->head_dim + sb_head_dim_v(a)) * (flash_in_parts(a) ? 4 : 2) + sums * flash_backward_padded_dim(a) * 4;
    return row * a->seq_q * (a->heads / a->heads_kv);
}

/* Key tiles of a sequence, or of a document of average length: the host does not know the lengths. */
static int sequence_key_tiles(const sb_attention *a, flash_backward_kernel kernel)
{
    const int all = flash_backward_key_tiles(a, kernel);
    return a->packed ? (all + a->documents - 1) / a->documents : all;
}

/* The largest divisor of n from `least` to `most`; 0 if there is none. */
static int divisor(int n, int least, int most)
{
    for (int d = most; d >= least; d--)
        if (n % d == 0)
            return d;
    return 0;
}

/* In order, the tiles of a head that begin at once follow each other by a hand-over; above head_dim 128, where that takes about a
 * step, causal rows of eight lose less by it than L2 gains by longer ones. */
static int section_of_short_rows(int all, int sms)
{
    const int sections = (8 * all + sms - 1) / sms;
    return (all + sections - 1) / sections;
}

/* As many as have their Q, dO and dQ sums in about two thirds of L2, but at least so many that the longest jobs of a section fill
 * the chip: what starts last should not be long. Sections are equal, rather up to 1.6 times as large than with a remainder. Of
 * packed documents about one is walked at a time, as one sequence is: with few heads at a time, the longest jobs of the last
 * documents would start when the chip runs out of others. */
int flash_backward_wide_section(const sb_attention *a, flash_backward_kernel kernel, int sms)
{
    const int key_tiles = sequence_key_tiles(a, kernel), fill = (sms + key_tiles - 1) / key_tiles;
    const int all = a->batch * a->heads_kv, documents = a->packed ? a->documents : 1;
    if (a->deterministic && a->causal && sb_head_dim_most(a) > 128)
        return section_of_short_rows(all, sms);
    const int64_t bytes = flash_backward_query_bytes(a, 1) / documents;
    const int fit = (int)((40 << 20) / (bytes > 0 ? bytes : 1));
    const int size = fit > fill ? fit : fill;
    if (size >= all)
        return all;
    int section = divisor(all, fill > size / 2 ? fill : (size + 1) / 2, size);
    for (int n = size + 1; section == 0 && 10 * n <= 16 * size; n++)
        section = divisor(all, n, n);
    const int sections = all / size;
    return section ? section : (all + sections - 1) / sections;
}

/* A section of heads makes about two jobs for each block: what it reads and adds to is then still in L2 when the next key
 * tile of a head comes (about 20 MB), and its long jobs are done when the chip runs out of short ones. Long rows of adders
 * in order get four, so that a tile and the next one of its head begin farther apart. */
int flash_backward_narrow_section(const sb_attention *a, int sms, bool in_order)
{
    const int key_tiles = sequence_key_tiles(a, FLASH_BACKWARD_NARROW), all = a->batch * a->heads_kv;
    const int section = (in_order && key_tiles > 8 ? 4 : 2) * ((sms + key_tiles - 1) / key_tiles);
    return section < all ? section : all;
}
