/* SPDX-License-Identifier: MIT */
/* What one rank does for comparison: the check (verify.c), and times of the whole model and its pieces (costs.c). */
#pragma once

#include "bench/pp/case.h"

/* Compares 3 updates of p v layers with one rank; false after making the row `fail`. */
bool pp_verify(pp_case *k);
/* Where nothing was checked: rank 0 chooses the algorithms of all stages' products; false after setting the row's status. */
bool pp_tune(pp_case *k);
/* What a block, the embedding and the head cost on rank 0; false after setting the row's status. */
bool pp_costs(pp_case *k, stage_costs *out);
/* The whole model's step on rank 0, with the same micro-batches; NAN: it does not fit. */
double pp_one_rank_ms(pp_case *k);
