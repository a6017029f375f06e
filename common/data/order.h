/* SPDX-License-Identifier: MIT */
/* In which order a run takes the windows of a file: place i of an epoch is a keyed permutation of i (a Feistel network, with
 * cycle walking where n is no power of four), so that nothing is shuffled, kept or drawn in sequence. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

uint64_t order_of(uint64_t i, uint64_t n, uint64_t key); /* i < n; below n */
/* Whether `of` takes each of n windows once: counts all of up to 2^24. */
bool order_is_whole(uint64_t (*of)(uint64_t i, uint64_t n, uint64_t key), uint64_t n, uint64_t key);
