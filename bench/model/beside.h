/* SPDX-License-Identifier: MIT */
/* What the same case gave in bf16 earlier in this run, for rows of float8. */
#pragma once

#include "common/options/options.h"
#include "common/session/session.h"

/* `value` of a column as a multiple of what the same case has there in bf16 (--precision, or --product where there is one), gathered
 * as parameters; NAN where there was none in this run, and in bf16, whose value is kept. */
double of_bf16(session *s, const bench_case *c, const char *column, double value);

/* The key of a case without these columns, so that cases which differ in nothing else share it. The list ends with NULL; caller
 * frees. */
char *key_without(const bench_case *c, const char *const *columns);
