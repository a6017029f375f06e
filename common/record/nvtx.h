/* SPDX-License-Identifier: MIT */
/* NVTX ranges around phases and ops, for nsys and ncu, and for a recording (record.h).
 * Costs a few nanoseconds when no tool listens. Ranges nest and belong to the calling thread. */
#pragma once

void range_push(const char *name);
void range_pop(void);

/* The same around what a bench does with a case: setup, its check, its timing. A recording leaves them out. */
void scope_push(const char *name);
void scope_pop(void);

/* The same around an op, with what it computes and moves, for a recording (record.h). */
struct record_work;
void op_push(const char *name, const struct record_work *work);
void op_pop(void);
