/* SPDX-License-Identifier: MIT */
/* The one place that times. A function that enqueues work is timed by device events around each call, or as a CUDA
 * graph of many calls where one is so short that the host's launches would be measured, or by the host's clock on
 * the CPU. For a step that times its own parts, the parts are collected.
 *
 * What was measured goes to the columns that begin with its name, those of them that the bench declares: NAME_ms
 * (median), NAME_mean_ms, NAME_std_ms, NAME_p10_ms, NAME_p90_ms, the same ending in _us, n_NAME or n_samples,
 * timer_NAME or timer; NAME_j or energy_j, the energy of one call, and NAME_tflop_per_j or tflop_per_j, which are NAN
 * unless the measurement is long enough for the GPU's energy counter (sampler.h). When the samples are taken, session.after_measure runs the same work once more, for a
 * profiler for example. */
#pragma once

#include "common/core/stats.h"
#include "common/session/session.h"

/* Times fn(arg), which enqueues work on the session's device and returns false on failure (then this returns false
 * and no column is filled). */
bool measure(session *s, row *w, const char *name, bool (*fn)(void *arg), void *arg, double *median_ms);

typedef struct measure_how {
    device *dev; /* on whose stream the work is */
    timing timing;
    int calls;    /* that fn enqueues: the columns and the median are for one */
    double flops; /* of one call; 0: it has no rate */
} measure_how;
/* --iters, or as many samples of `each_s` seconds, 3 at least, as --max-time has room for. */
int measure_iters(const timing *t, double each_s);
measure_how measure_default(const session *s); /* its device and timing, one call */
/* The same in another way. `w` may be NULL: no columns. */
bool measure_with(session *s, row *w, const char *name, const measure_how *how, bool (*fn)(void *arg), void *arg,
                  double *median_ms);

/* With --sustain: runs the same for that many seconds without a pause, and measures the second half of them. To be called
 * when everything else of the case is timed, since it heats the GPU up. Fills, of those that the bench declares, NAME_ms
 * or NAME_us (median of a call), NAME_drift_pct (by how much the second half of the samples is slower than the first),
 * NAME_sm_mhz and NAME_power_w (medians), NAME_j, NAME_tflops, NAME_tflop_per_j. *median_ms is NAN without --sustain. */
bool measure_sustained(session *s, row *w, const char *name, const measure_how *how, bool (*fn)(void *arg), void *arg,
                       double *median_ms);

enum { MEASURE_PARTS = 8, MEASURE_EARLY = 3 };
typedef struct measure_step {
    const char *const *names; /* [parts]; NULL: the step lacks this part */
    int parts;
    const char *host_name;               /* of the time from launch to completion by the host's clock; NULL: not kept */
    int warmup;                          /* steps before those that count */
    bool (*enqueue)(void *arg);          /* launches a step; false on failure */
    void (*wait)(void *arg, double *ms); /* until it is done; fills ms[parts] */
    /* After each of the first MEASURE_EARLY steps of all, which it counts from 0; may be NULL. */
    void (*early)(void *arg, int i, double host_ms);
} measure_step;
typedef struct measured_steps {
    double median_ms[MEASURE_PARTS]; /* NAN for a part without a name */
    int64_t n;
    double step_j; /* energy of a step by the host's clock, waits included; NAN unknown */
} measured_steps;
/* Runs --iters steps one by one, fewer where they take longer than --max-time (3 at least). False on failure. */
bool measure_steps(session *s, row *w, const measure_step *step, void *arg, measured_steps *out);

/* measure_sustained of steps: fills the columns of the name sustained_step from the times of this part. */
bool measure_steps_sustained(session *s, row *w, const measure_step *step, int part, void *arg, measured_steps *out);

/* What the functions above do at their end; for ranks that take samples of their own, together. */
void measure_again(session *s, const char *name, bool (*fn)(void *arg), void *arg);

/* The engine: samples are milliseconds of one call. *used says which timer it was: "event", "graph", "host". */
bool measure_samples(device *d, const timing *t, bool (*fn)(void *arg), void *arg, samples *out_ms, const char **used);
