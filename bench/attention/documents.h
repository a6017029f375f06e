/* SPDX-License-Identifier: MIT */
/* Lengths of packed documents. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Begins of n documents that share `total` tokens, and the end (n + 1): of lengths that differ by one at most, or between random
 * borders, each of which is equally likely anywhere, so that some documents are short and a few long. The same for the same seed
 * and stream. The caller frees it. */
int *documents_draw(int n, int total, bool random, uint64_t seed, uint32_t stream);
