/* A trainer's options as the closed form of common/core/formulas_memory.h wants them. */
#ifndef STEPBENCH_MODEL_MEMORY_STEP_H
#define STEPBENCH_MODEL_MEMORY_STEP_H

#include "common/core/formulas_memory.h"
#include "common/model/trainer.h"

/* Shapes, bytes and flags from the options; workspaces from the ops themselves, which are asked for each call of a step.
 * The attention op must exist and support the shape. */
memory_step memory_step_of(const trainer_options *o, const sb_kernels *k, sb_context *ctx);

#endif
