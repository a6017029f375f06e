/* SPDX-License-Identifier: MIT */
/* Which columns of a CSV file are parameters, under which names, and whether one says something. */
#pragma once

#include <stdbool.h>

#include "common/core/csv.h"

/* The parameters are first <= c < end: they stand between `reason` and the first measured column, which ends in a unit. */
void params_of(const csv *file, int *first, int *end);
/* Whether a parameter that has a plain value has another one. Files of the time before there was such a parameter do not have its
 * column. */
bool param_departs(const char *name, const char *value);
