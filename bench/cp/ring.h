/* SPDX-License-Identifier: MIT */
/* The way `ring`; see ring.c. */
#pragma once

#include "bench/cp/case.h"

bool ring_allocate(cp_case *k);
void ring_forward(cp_case *k), ring_backward(cp_case *k);
