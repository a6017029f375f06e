/* SPDX-License-Identifier: MIT */
/* Is what an op left behind right? Bounds by dtype, wider for values that are hard on purpose. */
#pragma once

#include "tests/gpu/problem.h"
#include "tests/gpu/program/runner.h"

/* What one run left behind, on the host. */
typedef struct result {
    unsigned char *bytes[T_COUNT]; /* outputs as stored, gaps included */
    float *lse;
} result;

bool judge_is_flash(const char *op);
/* How much wider than for N(0,1) a bound `rel_l2` of a tensor is. */
double judge_widening(const problem *p, const char *op, int tensor, double rel_l2);
/* Compares o, lse, dq, dk, dv with the expected values, and rows that see no key with 0 exactly; a line for each
 * failure, named with `mode`; forward alone has o and lse. rel_l2 of each tensor to `errors`. */
bool judge_result(const runner *r, const problem *p, const char *op, const result *x, const char *mode,
                  double errors[T_COUNT]);
/* 16-bit flash may be at most twice as wrong as unfused, plus what a tensor's own rounding can differ by. */
bool judge_against_unfused(const runner *r, const problem *p, const char *op, const double flash[T_COUNT],
                           const double unfused[T_COUNT]);
