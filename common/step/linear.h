/* SPDX-License-Identifier: MIT */
/* Linear layers of a step; see linear.c. */
#pragma once

#include "common/step/step.h"

/* One weight, or several with the same input that lie side by side. */
typedef struct linear {
    const char *name; /* "qkv" */
    param_kind first;
    int in;
    int parts, out[3];
} linear;
enum { LINEAR_QKV, LINEAR_O, LINEAR_GATE_UP, LINEAR_W2, LINEAR_HEAD, LINEARS };

size_t linear_side_workspace(const step *s); /* the most that a weight gradient's product wants */
/* y = x W^T, plus `residual` where it is not -1. Where ranks share layers, x of qkv, gate_up and the head, y of o and w2, and
 * residuals are of this rank's rows; so is dx of the former. dy of o and w2 is of all rows: share_gather. */
void linear_forward(step *s, int which, int layer, arena_slot x, arena_slot residual, arena_slot y);
/* `before` makes rows [first, first + rows) of x; NULL: they are there. */
void linear_forward_behind(step *s, int which, int layer, arena_slot x, arena_slot residual, arena_slot y,
                           void (*before)(step *s, int layer, int first, int rows));
void linear_dx(step *s, int which, int layer, arena_slot dy, arena_slot dx);
/* The same in two: what main does in between hides how this rank's parts of a sum leave. */
arena_slot linear_dx_part(step *s, int which, int layer, arena_slot dy, arena_slot dx);
void linear_dx_sum(step *s, int which, arena_slot *part, arena_slot dx);
/* On the side stream with overlap, or later, by a W: dy and x must then be dropped by side_drop. */
void linear_dw(step *s, int which, int layer, arena_slot dy, arena_slot x);
void linear_dw_left(step *s, const step_note *n); /* what linear_dw has left to the W, on main */

/* The head on tokens [first, first + rows) of x (T, d): y (rows, V), dx (T, d). dw (V, d) is written by the first chunk and
 * added to by the others, and by later micro-batches. All on main. */
void head_chunk_forward(step *s, int first, int rows, arena_slot x, arena_slot y);
void head_chunk_backward(step *s, int first, int rows, arena_slot dy, arena_slot x, arena_slot dx, char *dw);
