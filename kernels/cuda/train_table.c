/* SPDX-License-Identifier: MIT */
/* The table of the training ops. */
#include "kernels/cuda/train.h"

#define ENTRY(op) .op = sb_cuda_##op,
const sb_train_ops sb_cuda_train_ops = {TRAIN_OPS(ENTRY)};
