/* SPDX-License-Identifier: MIT */
/* What the Hopper forward chooses, for tests. */
#pragma once

#include "kernels/cuda/attention/hopper/flash_hopper.h"

SB_C_BEGIN

typedef struct flash_forward_choice {
    int groups; /* groups of 64 query rows in a block; 0: no instance has the columns */
    int keys;   /* keys of a step */
    int split;  /* blocks that share a tile */
    bool paired;
} flash_forward_choice;

/* clusters: see count_clusters. */
flash_forward_choice flash_forward_choose(const sb_attention *a, flash_forward_kernel kernel, const int *clusters);

SB_C_END
