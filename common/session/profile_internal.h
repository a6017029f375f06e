/* SPDX-License-Identifier: MIT */
/* What the files of --profile share: profile.c is the pass over the cases, profile_blocks.c records one, profile_limits.c
 * knows the device's pauses, profile_write.c writes, profile_state.c is what measuring tells them. */
#pragma once

#include "common/profile/files.h"
#include "common/core/stats.h"
#include "common/record/record.h"
#include "common/session/profile.h"

struct session_profile {
    char *folder;                   /* "": rows go nowhere, nor do profiles */
    char run_id[64], campaign[256]; /* rank 0's */
    const bench_case *c;
    bool armed, calibrated;
    bool recorded, told; /* some step was; the user knows why none is */
    idle_limits limits;
};

enum { PROFILE_BLOCKS = 2, PROFILE_STEPS_MAX = 40 };
typedef struct profile_work {
    session *s;
    const profile_how *how;
    bool (*fn)(void *arg);
    void *arg;
    int steps; /* of a block */
    samples event_ms, recorded_ms, host_ms;
    recording *r[PROFILE_BLOCKS];
    record_window windows[PROFILE_BLOCKS][PROFILE_STEPS_MAX];
    int window_count[PROFILE_BLOCKS];
} profile_work;

typedef struct profile_choice {
    int block, step; /* block -1: there is none */
    double base_us;  /* where it begins on the first rank that begins it */
} profile_choice;

/* Milliseconds that profile_note was told; NAN: the measurement was not timed under this name. */
double profile_noted_ms(const session *s, const char *case_key, const char *name);

bool profile_first_rank(const session *s);
void profile_share(const session *s, const profile_how *how, void *data, size_t bytes); /* rank 0's, where together */
bool profile_on_all(const session *s, const profile_how *how, bool mine);

/* Fills x with recordings and windows, on one clock. False on every rank, with a sentence on one at least. */
bool profile_blocks(profile_work *x, double *clock_err_us, char *why, size_t why_bytes);
profile_choice profile_choose(const profile_work *x, bool ok); /* rank 0's, where together */
void profile_work_free(profile_work *x);

void profile_calibrate(session *s, device *d); /* fills s->profile->limits, once */

/* The folder of rank 0's rows, for every rank; and no trace of an earlier recording in it. */
void profile_prepare_folder(session *s, const profile_how *how, const profile_identity *id, char *folder, size_t bytes);
/* One rank's tables and its part of the trace. */
void profile_write(session *s, const profile_how *how, const profile_identity *id, const profile_work *x,
                   profile_choice c, const char *folder, profile_result *out);
/* All ranks together; r NULL: this one has none. */
void profile_write_together(session *s, const char *folder, const profile_identity *id, const recording *r, int step,
                            double base_us, double clock_err_us);
