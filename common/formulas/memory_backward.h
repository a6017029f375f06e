/* SPDX-License-Identifier: MIT */
/* The worst moments of backward. Not part of the API; memory.h is. */
#pragma once

#include "common/formulas/memory_moments.h"

void memory_backward(walk *w); /* *w->worst becomes the worst moment; what is held beside grows by the gradients */
