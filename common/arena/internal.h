/* SPDX-License-Identifier: MIT */
/* What arena.c notes and plan.c places. Not part of the API. */
#pragma once

#include "common/arena/arena.h"

enum { ARENA_ALIGNMENT = 256 };

typedef struct arena_tensor {
    int64_t offset, bytes; /* offset is given for a fixed one, else placed */
    int taken, dropped;    /* lives over events [taken, dropped) */
    bool fixed;
} arena_tensor;

/* Gives the n tensors that are not fixed their offsets, multiples of ARENA_ALIGNMENT: two that live at the same time
 * never overlap. Returns the end of the highest one. */
int64_t arena_place(arena_tensor *tensors, int n);
