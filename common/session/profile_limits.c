/* SPDX-License-Identifier: MIT */
/* How long a GPU pauses between kernels, and how long a launch takes where nothing runs: measured on kernels that fill
 * memory with random numbers; see common/profile/idle.h. */
#include <math.h>
#include <stdlib.h>

#include "common/session/profile_internal.h"

enum { KERNELS = 100, LAUNCHES = 20 };
static const size_t calibration_bytes = 16 << 20; /* of a kernel that runs longer than the host takes to launch one */

static double quantile(double *x, int n, double q)
{
    if (n == 0)
        return 0;
    qsort(x, (size_t)n, sizeof *x, ascending);
    return x[(int)(q * (n - 1) + 0.5)];
}

/* Kernels that fill memory with random numbers. */
typedef struct filler {
    const sb_kernels *k;
    sb_context *ctx;
    device *d;
    void *memory;
} filler;

static bool fill(const filler *f, int times)
{
    bool ok = true;
    for (int i = 0; ok && i < times; i++)
        ok = f->k->fill_normal(f->ctx, SB_FP32, f->memory, calibration_bytes / sizeof(float), 1, 0, 1,
                               device_stream(f->d)) == SB_OK;
    return ok;
}

/* A graph, behind which the host is in time with launches; then launches of which each finds nothing running. */
static recording *record_pauses(const filler *f)
{
    char why[256];
    recording *r = NULL;
    if (!device_graph_begin(f->d))
        return NULL;
    const bool filled = fill(f, KERNELS);
    device_graph *g = device_graph_end(f->d);
    if (g && filled && recorder_start(f->d, why, sizeof why)) {
        device_graph_launch(f->d, g);
        fill(f, KERNELS);
        device_sync(f->d);
        for (int i = 0; i < LAUNCHES; i++) {
            fill(f, 1);
            device_sync(f->d);
        }
        r = recorder_stop(f->d, why, sizeof why);
    }
    device_graph_destroy(f->d, g);
    return r;
}

/* Some kernels are harder to start than others, so a pause may be three times the longest of these. */
static idle_limits limits_of(const recording *r)
{
    double node[KERNELS], kernel[KERNELS], launch[LAUNCHES];
    int nodes = 0, kernels = 0, launches = 0;
    for (size_t i = 1; i < r->span_count; i++) {
        const record_span *x = &r->spans[i];
        const double pause = fmax(0, x->start_us - r->spans[i - 1].end_us);
        if (i < KERNELS && nodes < KERNELS)
            node[nodes++] = pause;
        else if (i > KERNELS && i < 2 * KERNELS && kernels < KERNELS)
            kernel[kernels++] = pause;
        else if (i >= 2 * KERNELS && x->call >= 0 && launches < LAUNCHES)
            launch[launches++] = fmax(0, x->start_us - r->calls[x->call].end_us);
    }
    return (idle_limits){.launch_us = quantile(launch, launches, 0.5),
                         .node_us = 3 * quantile(node, nodes, 0.99),
                         .kernel_us = 3 * quantile(kernel, kernels, 0.99)};
}

/* Stays 0 where there is no memory for it. */
void profile_calibrate(session *s, device *d)
{
    struct session_profile *p = s->profile;
    if (p->calibrated || device_kind_of(d) == DEVICE_CPU)
        return;
    p->calibrated = true;
    filler f = {.k = sb_kernels_cuda(), .d = d, .memory = device_malloc(d, calibration_bytes)};
    if (f.memory && f.k->create(device_ordinal(d), &f.ctx) == SB_OK) {
        recording *r = fill(&f, 1) ? record_pauses(&f) : NULL;
        if (r)
            p->limits = limits_of(r);
        recording_free(r);
        device_sync(d);
        f.k->destroy(f.ctx);
    }
    device_free(d, f.memory);
}
