/* SPDX-License-Identifier: MIT */
/* The worst moments of backward. Not part of the API; memory.h is. */
#ifndef STEPBENCH_FORMULAS_MEMORY_BACKWARD_H
#define STEPBENCH_FORMULAS_MEMORY_BACKWARD_H

#include "common/formulas/memory_moments.h"

void memory_backward(walk *w); /* *w->worst becomes the worst moment; what is held beside grows by the gradients */

#endif
