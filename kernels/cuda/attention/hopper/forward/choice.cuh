/* SPDX-License-Identifier: MIT */
/* Which instance of the Hopper forward runs a problem, and how many blocks share a tile. */
#pragma once

#include "kernels/cuda/attention/hopper/flash_hopper.h"
#include "kernels/cuda/attention/hopper/forward/layout.cuh"

namespace flash_hopper
{

struct forward_choice {
    const forward_instance *instance; /* NULL: none has the columns */
    int split;                        /* blocks that share a tile */
    int at_once;                      /* clusters that run at once */
    double time;
};

/* The instances that a problem can have; of pairs, see flash_forward_has_pairs, apart. */
const forward_list &forward_list_for(const sb_attention *a);
/* The fastest of those that `kernel` allows. clusters: see count_clusters. */
forward_choice choose_forward(const sb_attention *a, flash_forward_kernel kernel, const int *clusters);

} // namespace flash_hopper
