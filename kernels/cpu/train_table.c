/* SPDX-License-Identifier: MIT */
/* The table of the training ops. */
#include "kernels/cpu/train.h"

#define ENTRY(op) .op = cpu_##op,
const sb_train_ops cpu_train_ops = {TRAIN_OPS(ENTRY)};
