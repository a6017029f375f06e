/* SPDX-License-Identifier: MIT */
/* What CUDA_VISIBLE_DEVICES leaves of a machine's GPUs, by its text alone: CUDA takes its entries in order and stops at the
 * first that names no GPU. Whether a UUID is there only CUDA can say. */
#pragma once

#include <stddef.h>

/* How many of `gpus` are visible; `text` is the variable's value, NULL where it is not set. */
int visible_count(const char *text, int gpus);
/* The sentence for a value that leaves none; `gpus` below 1: nobody knows how many there are. */
void visible_none(const char *text, int gpus, char *out, size_t out_bytes);
