/* SPDX-License-Identifier: MIT */
/* What the attention benches share: one attention problem on the device, set up, run once, verified against the fp64
 * oracle and timed. A bench adds its options, its columns and what it derives from the times. */
#pragma once

#include "bench/attention/problem.h"

typedef enum attention_part { ATTENTION_FORWARD = 1, ATTENTION_BACKWARD = 2, ATTENTION_BOTH = 3 } attention_part;

/* Hooks of the session; start makes the library context, finish destroys it. */
void attention_start(session *s);
void attention_finish(session *s);

/* Allocates and fills the tensors of a case, runs forward and backward once and verifies them. An op that has no
 * backward for the case runs only forward: a.forward_only is then set, and the row's reason says why. False when
 * the case ends there: the row then has its status (skip, fail) or memory remembers why (oom). */
bool attention_prepare(attention_case *ac, session *s, const bench_case *c, row *w, const attention_problem *problem);

/* Times one part and fills its columns; a part that a.forward_only leaves out is NAN. False after setting the row's
 * status. */
bool attention_time(attention_case *ac, attention_part part, double *median_ms);

/* With --sustain: times the part in the steady state, in the columns sustained_<part>_... Call it after all
 * attention_time, since it heats the GPU up. False after setting the row's status. */
bool attention_sustain(attention_case *ac, attention_part part);

/* Verifies again what the last timed call left: races show under load. False after making the row `fail`. */
bool attention_check(attention_case *ac);

/* The columns that attention_time fills; `part` is "fwd", "bwd" or "fwd_bwd". */
/* clang-format off */
#define ATTENTION_TIME_COLUMNS(part, what)                                                   \
    MEASURED_COLUMNS(part, true, what),                                                      \
    {part "_j", COLUMN_REAL, false, what ", energy; nan where sampling takes less than about 0.6 s"}, \
    {part "_tflop_per_j", COLUMN_REAL, false, what ", its FLOPs / energy, in 10^12"}
/* clang-format on */
