/* SPDX-License-Identifier: MIT */
/* What a type of GPU should reach: reference/<gpu>.csv, which are part of the program, or a file of the user's. Columns:
 * metric, gpus (how many take part), shape (of the measurement; empty: any), value, floor (empty: value less the
 * metric's tolerance), source, date, verified (1: measured by us). */
#pragma once

#include "common/core/csv.h"
#include "common/qualify/verdict.h"

/* The reference of the GPU with this name, as CUDA has it; NULL when there is none. */
csv *reference_shipped(const char *gpu);
/* The reference files that are part of the program, by number; NULL behind the last one. */
const char *reference_file(size_t i, const char **gpu);
/* False, and NAN in *out, when the table lacks it. t may be NULL. */
bool reference_find(const csv *t, const char *metric, int gpus, const char *shape, qualify_reference *out);
/* Why a table is none, as a sentence, or NULL. */
const char *reference_problem(const csv *t);
