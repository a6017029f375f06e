/* SPDX-License-Identifier: MIT */
/* Products of float8 operands on the CPU; `p` has been checked. */
#pragma once

#include "kernels/kernels.h"

void cpu_float8_matmul(const sb_matmul *p);
