/* SPDX-License-Identifier: MIT */
/* --profile: after the last case, so that nothing that is timed runs beside a profiler, all cases run once more. What
 * measure.h timed is then recorded instead, and written as tables and a trace to the folder profile/ beside the rows;
 * docs/profile.md has them. */
#pragma once

#include "common/profile/sweep.h"
#include "common/session/session.h"
#include "kernels/kernels.h"

/* The table of the session's device, with a context of it that the caller destroys; under --profile, and on the CPU, whose spans
 * they are, with a range around each op. Ends the program if there is no context. */
const sb_kernels *session_kernels(const session *s, sb_context **ctx);

/* This is the pass that records: its rows are dropped, and samples are few. */
bool session_profiling(const session *s);

typedef struct profile_result {
    bool ok;
    double step_ms;  /* by events, nothing recorded */
    sweep_sums sums; /* of the step that was chosen */
} profile_result;

typedef struct profile_how {
    device *dev;
    bool together; /* all ranks of the job call this at the same time; the ranks' collectives are then compared */
    bool member;   /* this rank has work; else fn is not called */
    bool silent;   /* record, but write nothing */
    const profile_result *twin; /* of the same step without communication; NULL: none */
    void (*settle)(void *arg);  /* waits for what fn enqueued on other streams of the CPU; may be NULL */
} profile_how;
/* Records fn(arg), which enqueues a step on the device. False after a warning where there is no recording. */
bool session_profile(session *s, const char *name, const profile_how *how, bool (*fn)(void *arg), void *arg,
                     profile_result *out);

/* What the timing of a measurement found, to stand beside its profile. Does nothing without --profile. */
void profile_note(session *s, const char *case_key, const char *name, double ms);

/* For session.c. */
void profile_pass_begin(session *s);
void profile_pass_end(session *s);
void profile_case_begin(session *s, const bench_case *c);
void profile_case_end(session *s);
