/* SPDX-License-Identifier: MIT */
/* The main kernels of the Hopper flash backward, and the forward whose tiles share K and V, as ops of their own, whatever the
 * choice by shape would be: so every case tests each of them that takes it, small cases for compute-sanitizer among them. */
#pragma once

#include "kernels/kernels.h"

/* "flash_wide", "flash_narrow", "flash_pair" and "flash_tall", whose forward is that of "flash"; "flash_forward_pairs", whose
 * backward is. The table ends with a NULL name, at once in a build without CUDA. */
const sb_attention_op *forced_kernels(void);
