/* SPDX-License-Identifier: MIT */
/* What the Hopper backward's choice of a kernel and its order of additions both start from: what a choice is, and the
 * sizes of a problem as the kernels cut it. */
#pragma once

#include "kernels/cuda/attention/hopper/flash_hopper.h"

SB_C_BEGIN

/* Keys of a tile: in most kernels, in the large one, in the tall one. */
enum { FLASH_BACKWARD_KEYS = 128, FLASH_BACKWARD_LARGE_KEYS = 64, FLASH_BACKWARD_TALL_KEYS = 96 };

typedef struct flash_backward_choice {
    flash_backward_kernel kernel;
    int split; /* wide kernel: blocks that share a key tile */
    int sums;  /* sums of dQ: more than one only if deterministic, and not in the narrow kernel */
    /* the first `early` adders (key tiles of a head, or pairs of them) share the first `early_sums` sums, the others share
     * the rest */
    int early, early_sums;
} flash_backward_choice;

/* Sums of dQ with which no adder waits: one for each key tile of a head, or pair of them; the narrow kernel has one. */
int flash_backward_most_sums(const sb_attention *a, flash_backward_kernel kernel);

int flash_backward_tile_keys(const sb_attention *a, flash_backward_kernel kernel); /* keys of a tile */
int flash_backward_key_tiles(const sb_attention *a, flash_backward_kernel kernel);
/* Query rows a step of the wide kernel, as its tiles need them. */
int flash_backward_step_rows(const sb_attention *a);
/* Whether dQ leaves the wide kernel by way of shared memory; see backward_send. Narrower heads would stage columns that are not needed. */
bool flash_backward_is_staged(const sb_attention *a);
/* Above head_dim or head_dim_v 128: columns of Q and K, and of V and dO, that the large kernel computes. */
typedef struct flash_backward_columns {
    int qk, v;
} flash_backward_columns;
flash_backward_columns flash_backward_large_columns(const sb_attention *a);
/* Whether the tall kernel computes this. */
bool flash_backward_tall_takes(const sb_attention *a);
/* Columns that dQ sums have. */
int flash_backward_padded_dim(const sb_attention *a);
/* Bytes of Q, dO and `sums` sums of dQ of a key/value head. */
int64_t flash_backward_query_bytes(const sb_attention *a, int sums);
/* Key/value heads that the kernels walk together. */
int flash_backward_wide_section(const sb_attention *a, flash_backward_kernel kernel, int sms);
int flash_backward_narrow_section(const sb_attention *a, int sms, bool in_order);

SB_C_END
