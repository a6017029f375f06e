/* SPDX-License-Identifier: MIT */
/* The training ops of the CPU backend: cpu_<op> for each op of sb_train_ops. */
#pragma once

#include "kernels/shared/train_list.h"

SB_C_BEGIN

#define DECLARE(op) TRAIN_OP(cpu_##op, op)
TRAIN_OPS(DECLARE)
#undef DECLARE

extern const sb_train_ops cpu_train_ops;

/* Row r of y, by the row's rstd. */
void cpu_rmsnorm_output(const sb_rmsnorm *p, int r);

SB_C_END
