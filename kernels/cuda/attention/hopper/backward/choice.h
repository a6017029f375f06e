/* SPDX-License-Identifier: MIT */
/* Which main kernel of the Hopper backward a problem gets, and how that runs: by short models of their times. */
#pragma once

#include "kernels/cuda/attention/hopper/backward/sizes.h"

SB_C_BEGIN

/* The fastest, or how `kernel` runs if that is not FLASH_BACKWARD_CHOSEN. `sms` multiprocessors; `clusters`: see
 * count_clusters. */
flash_backward_choice flash_backward_choose(const sb_attention *a, flash_backward_kernel kernel, int sms,
                                            const int *clusters);

SB_C_END
