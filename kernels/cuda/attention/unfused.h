/* SPDX-License-Identifier: MIT */
/* The two attention ops that keep the matrix of scores in memory. */
#pragma once

#include "kernels/kernels.h"

extern const sb_attention_op sb_unfused_op; /* "unfused" */
extern const sb_attention_op sb_fused_op;   /* "fused" */
