/* SPDX-License-Identifier: MIT */
/* What a run trains on: sample after sample of seq + 1 tokens, of a file in the order of order.h, or made (made.h). Sample i is
 * a function of i alone. Step s of a run takes samples s G to s G + G - 1, of which rank r has the r-th part: so any number of
 * ranks sees the same samples in the same step, and where a run stands is one integer. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/data/made.h"

typedef struct data data;
/* `name` is "made" or a file's path. NULL: a sentence in `why`. */
data *data_open(const char *name, int symbols, int seq, uint64_t seed, char *why, size_t why_bytes);
void data_close(data *d);
const made *data_made(const data *d);                          /* NULL: tokens come from a file */
bool data_sample(const data *d, int64_t sample, int32_t *out); /* (seq + 1). False: DATA_UNREADABLE */
#define DATA_UNREADABLE "the file can't be read any more: it has become shorter, or its disk fails"
/* A number of its first samples: of other tokens, or of so many more that their order is another, it is another number but for
 * chance. */
uint64_t data_print(const data *d);
bool data_order_is_whole(const data *d); /* each window of a file comes once in an epoch */

void data_plant_repeat(data *d); /* one window of a file comes twice in an epoch, another never: for checks */
