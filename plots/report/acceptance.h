/* SPDX-License-Identifier: MIT */
/* Whether a machine's folder of results can be sent: whole, verified, of one clean commit, and within the limits of its
 * GPU. */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* Writes a sentence for each thing that is wrong with the newest rows of `dir`, or one that says what is right, and
 * returns the number of the former:
 *   - a file of `benches` ("bench_flash", or "bench_zero1:2" for one that needs two GPUs of the machine) is missing;
 *   - a row of a pipeline names a file that is not there;
 *   - a file has no rows, torn ones, or a character that no bench writes; rows failed, were not verified, or come from a tree
 *     with changes;
 *   - rows have several commits; rows of one GPU name several GPUs;
 *   - a rate is above the data sheet's peak, a share of it above 100 %, a share of the measured product above what the
 *     data sheet is of that, or a time not above 0. */
size_t results_accept(const char *dir, const char *const *benches, size_t count, FILE *out);
