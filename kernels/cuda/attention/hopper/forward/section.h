/* SPDX-License-Identifier: MIT */
/* How many heads the Hopper forward walks together, so that their K and V stay in L2. */
#pragma once

#include "kernels/kernels.h"

SB_C_BEGIN

/* Query heads, whole groups of a key/value head.
 * Where every query sees every key, one group: its tiles begin at the same key at the same time and stay together, and what several
 * multiprocessors ask L2 for at once it reads once. At the power limit that is worth 2 to 10 %.
 * Otherwise as many as have K and V in about half of L2, in equal sections, rather a little larger than that than with a remainder of
 * less than half of one. The longest tiles of a short last section would start when the chip has run out of others: 16 heads of S 8192 in
 * sections of 5 lose 14 %. */
int flash_forward_section(const sb_attention *a);

SB_C_END
