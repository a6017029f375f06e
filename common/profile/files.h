/* SPDX-License-Identifier: MIT */
/* The files of a profile, in a folder: a CSV for each table, to which every profile adds its rows, and a trace. The
 * columns are those of docs/profile.md. False with errno. */
#pragma once

#include "common/profile/idle.h"
#include "common/profile/ranks.h"
#include "common/profile/tables.h"

typedef struct profile_identity { /* the columns that all tables start with */
    const char *bench, *variant, *key, *measurement;
    int rank, ranks;
    const char *run_id, *campaign, *machine, *gpu, *device, *commit;
} profile_identity;

typedef struct profile_totals {
    double window_us, busy_us, kernel_us;
    double timed_ms; /* a step as it was timed, before a recorder was loaded; NAN: it was not */
    double event_ms, recorded_event_ms,
        host_ms; /* a step by events and by the host's clock; by events while recorded */
    double attributed_pct;
    size_t kernels;
    idle_limits limits;
    const char *costs;    /* "buffer flush 0.1 ms, ..." */
    const char *trace;    /* file */
    const char *ceilings; /* "this run", "another run", "none" */
} profile_totals;

typedef struct profile_overlap { /* NAN: no twin */
    double step_ms, twin_ms;
    bool has_twin;
    sweep_sums own, twin;
} profile_overlap;

bool profile_write_kernels(const char *folder, const profile_identity *id, const profile_tables *t);
bool profile_write_products(const char *folder, const profile_identity *id, const profile_tables *t);
bool profile_write_softmax(const char *folder, const profile_identity *id, const profile_tables *t);
bool profile_write_totals(const char *folder, const profile_identity *id, const profile_totals *t);
bool profile_write_idle(const char *folder, const profile_identity *id, const idle_part *parts, size_t n);
bool profile_write_overlap(const char *folder, const profile_identity *id, const profile_overlap *o);
/* c, t: of this rank; bus: busbw over algbw of each; first_us: time 0 of start_us. */
bool profile_write_collectives(const char *folder, const profile_identity *id, const rank_collective *c,
                               const collective_times *t, const double *bus, size_t n, double first_us);

/* "all_reduce" at 2 ranks -> 1; 0 for what has no bus bandwidth. */
double profile_bus_factor(const char *op, int ranks);

/* Adds this rank to the trace; see trace.c. base_us: time 0, the same for all ranks. */
bool profile_write_trace(const char *path, const char *label, int rank, const recording *r, record_window w,
                         double base_us);
