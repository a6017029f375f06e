/* SPDX-License-Identifier: MIT */
/* Runs ops on a device in guarded buffers and judges what they give: the tally, and one line for each failure. */
#pragma once

#include "common/device/device.h"
#include "kernels/kernels.h"

typedef struct tally {
    char op[32], dtype[16];
    int passed, failed, skipped;
    int forward_only; /* of those passed or failed, the ones without a backward */
    double worst;     /* rel_l2 of the worst output */
    char skip_reason[256];
} tally;

typedef struct runner {
    device *dev;
    const sb_kernels *kernels;
    sb_context *ctx;
    size_t zone_bytes; /* NaN before and after every buffer; 0 leaves overruns to compute-sanitizer */
    bool small;        /* for compute-sanitizer: right results of each kernel once are enough */
    int repeats;
    const char *program;
    const char *extra_options; /* for the repro command */
    struct slab *slab;         /* guarded buffers lie in it: an allocation for each would take most of the time */
    tally *tallies;
    int n_tallies;
} runner;

/* A device buffer between two zones of NaN. */
typedef struct guarded {
    unsigned char *data; /* on the device */
    size_t bytes;
} guarded;

/* All bytes 0xff, NaN in every dtype, once the device's stream gets there. */
guarded guarded_create(const runner *r, size_t bytes);
void guarded_free(const runner *r, guarded *g);
bool guarded_intact(const runner *r, const guarded *g); /* are both zones as they were? */

/* What lies in all guarded buffers now, by one download; waits for the device's stream. */
typedef struct snapshot {
    const runner *r;
    unsigned char *host; /* NULL: buffers of their own, which are asked one by one */
} snapshot;
snapshot snapshot_take(const runner *r);
void snapshot_free(snapshot *s);
bool snapshot_intact(const snapshot *s, const guarded *g);
void snapshot_read(const snapshot *s, const guarded *g, void *out);

struct slab *slab_create(void);
void slab_free(const runner *r); /* when no guarded buffer is left */

tally *runner_tally(runner *r, const char *op, const char *dtype);
/* Prints "FAIL op dtype case: what" with a repro command, and returns false. */
bool runner_fail(const runner *r, const char *op, const char *dtype, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
