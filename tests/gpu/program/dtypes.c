/* SPDX-License-Identifier: MIT */
/* See dtypes.h. */
#include "tests/gpu/program/dtypes.h"

const char *const case_dtype_names[5] = {"bf16", "fp16", "tf32", "fp32", "bf16x3"};
