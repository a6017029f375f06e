/* SPDX-License-Identifier: MIT */
/* The columns of bench_memory that a timeline and the closed form give. */
#pragma once

#include "common/train/history.h"
#include "common/session/session.h"

/* Fills peaks, kinds, predictions, sizes and the largest allocation; prints the --top largest under the name.
 * Returns by how many percent the closed form misses the phase that it misses most. */
double memory_row_fill(session *s, row *w, const trainer *t, const timeline *x, const char *name);
