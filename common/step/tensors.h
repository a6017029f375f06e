/* SPDX-License-Identifier: MIT */
/* Parameters and gradients of a step by their names, and what its hooks are told of them. */
#pragma once

#include "common/step/step.h"

void *step_param(const step *s, param_kind kind, int layer);
/* The gradient of a tensor and those next to it, `count` elements: live from here on. */
void *step_grad(step *s, param_kind kind, int layer, int64_t count);
void step_ready(step *s, param_kind kind, int layer, int64_t count, void *stream);
void step_need(step *s, int layer); /* forward reads a block's parameters next; layer as in params_range */
