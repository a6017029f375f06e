/* SPDX-License-Identifier: MIT */
/* The cases of test_gpu, op by op. */
#pragma once

#include "tests/gpu/problem.h"
#include "tests/gpu/program/program.h"

/* Every op of the table that passes `wanted` (NULL: all) on one problem, the reference among them. */
void run_attention(runner *r, problem *p, const char *wanted);
/* gemm, fill_normal, copy, nothing. */
void run_basic(runner *r, const arguments *x);
