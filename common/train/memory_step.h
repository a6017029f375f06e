/* SPDX-License-Identifier: MIT */
/* A trainer's options as the closed form of common/formulas/memory.h wants them. */
#pragma once

#include "common/formulas/memory.h"
#include "common/step/options.h"

/* Shapes, bytes and flags from the options; workspaces from the ops themselves, which are asked for each call of a step.
 * The attention op must exist and support the shape. */
memory_step memory_step_of(const step_options *o, const sb_kernels *k, sb_context *ctx);
