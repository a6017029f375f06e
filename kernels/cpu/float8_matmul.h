/* SPDX-License-Identifier: MIT */
/* Products of float8 operands on the CPU; `p` has been checked. */
#ifndef STEPBENCH_KERNELS_CPU_FLOAT8_MATMUL_H
#define STEPBENCH_KERNELS_CPU_FLOAT8_MATMUL_H

#include "kernels/kernels.h"

void cpu_float8_matmul(const sb_matmul *p);

#endif
