/* SPDX-License-Identifier: MIT */
/* The training ops of the CUDA backend: sb_cuda_<op> for each op of sb_train_ops. */
#pragma once

#include "kernels/shared/train_list.h"

SB_C_BEGIN

#define DECLARE(op) TRAIN_OP(sb_cuda_##op, op)
TRAIN_OPS(DECLARE)
#undef DECLARE

extern const sb_train_ops sb_cuda_train_ops;

SB_C_END
