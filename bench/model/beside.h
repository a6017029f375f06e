/* SPDX-License-Identifier: MIT */
/* What the same case gave in bf16 earlier in this run, for rows of float8. */
#pragma once

#include "common/options/options.h"
#include "common/session/session.h"

/* Keeps `value` of a case in bf16, and gives that of the case that differs only in its precision: NAN where there is none yet. */
void bf16_keep(session *s, const bench_case *c, double value);
double bf16_beside(session *s, const bench_case *c);
