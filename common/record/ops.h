/* SPDX-License-Identifier: MIT */
/* The table of kernels with a range around each op, which carries what the op computes and moves: for a recording and
 * for tools that show NVTX ranges. A program that records nothing uses the table itself, and pays nothing. */
#pragma once

#include "kernels/kernels.h"

/* One table is wrapped at a time: that of the last call. */
const sb_kernels *profiled_kernels(const sb_kernels *inner);
