/* SPDX-License-Identifier: MIT */
/* What CUDA_VISIBLE_DEVICES leaves of a machine's GPUs, by its text alone: CUDA takes its entries in order and stops at the
 * first that names no GPU. Whether a UUID is there only CUDA can say. And whether a setting keeps them from each other's memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* How many of `gpus` are visible; `text` is the variable's value, NULL where it is not set. */
int visible_count(const char *text, int gpus);
/* The sentence for a value that leaves none; `gpus` below 1: nobody knows how many there are. */
void visible_none(const char *text, int gpus, char *out, size_t out_bytes);

/* NCCL's variable that keeps GPUs from each other's memory, and whether this value of it, NULL where it is not set, does. */
#define VISIBLE_APART "NCCL_P2P_DISABLE"
bool visible_apart(const char *setting);
