/* SPDX-License-Identifier: MIT */
/* The data of a collective: whole numbers, exact in 8 bits of mantissa also when summed over all ranks. */
#pragma once

#include "bench/collective/problem.h"

bool collective_allocate(collective *k, size_t *asked_bytes); /* false: no memory for so much */
void collective_fill(collective *k);                          /* this rank's input; NaN or nonsense elsewhere */
size_t collective_wrong(collective *k, int calls);            /* elements that are not right after `calls` calls */
