/* SPDX-License-Identifier: MIT */
/* The benchmarking_mixed_precision problem, part (c): how much faster is a model in lower precision? Forward, backward
 * and AdamW of one policy, and its speedup over fp32 at the same shape, whose matrix products are fused multiply-adds. */
#include "bench/mixed/mixed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/beside.h"
#include "bench/model/case.h"
#include "bench/model/context.h"
#include "bench/model/timing.h"
#include "bench/model/verify.h"
#include "common/core/cache.h"
#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/core/text.h"
#include "common/session/ceiling.h"

static const char *const phases[] = {"fwd", "bwd", "opt", "step"};
enum { PHASES = MODEL_PARTS };

/* ---- fp32 of the same shape ---- */

/* What speedups refer to; a case that failed in this run is not replaced by an older one. */
typedef struct baseline {
    double ms[PHASES];
} baseline;

/* What speedups compare, and so is no part of the shape. */
static const char *const compared[] = {"precision", "fp32_products", NULL};

static void forget(baseline *b)
{
    for (int i = 0; i < PHASES; i++)
        b->ms[i] = NAN;
}

/* That of a case's shape; added with NAN where there is none, and *added says so. */
static baseline *baseline_of(const session *s, const bench_case *c, bool *added)
{
    OWNED char *shape = key_without(c, compared);
    baseline *b = cache_find(s->kept, "fp32 steps", shape);
    *added = !b;
    if (!b) {
        b = cache_add(s->kept, "fp32 steps", shape, sizeof *b, NULL);
        forget(b);
    }
    return b;
}

static void baseline_forget(const session *s, const bench_case *c)
{
    bool added;
    forget(baseline_of(s, c, &added));
}

/* When fp32 was measured by another program of the same ./run_all.sh, its newest row of the shape serves. */
static void baseline_load(const session *s, const bench_case *c, baseline *b)
{
    static const char *const fp32[][2] = {{"precision", "fp32"}, {"fp32_products", "fma"}, {NULL}};
    size_t r;
    OWNED_CSV csv *t = row_beside(s, c, "timing", fp32, &r);
    for (int i = 0; t && i < PHASES; i++) {
        OWNED char *column = xasprintf("%s_ms", phases[i]);
        b->ms[i] = csv_real(t, r, column);
    }
}

/* ---- steps ---- */

static void fill_speedups(mixed *m, const step_options *o, const double ms[PHASES])
{
    const bool is_fp32 = strcmp(o->precision->name, "fp32") == 0 && !o->split;
    bool added;
    baseline *b = baseline_of(m->s, m->c, &added);
    if (is_fp32)
        memcpy(b->ms, ms, sizeof b->ms);
    else if (added)
        baseline_load(m->s, m->c, b);
    for (int i = 0; i < PHASES; i++) {
        OWNED char *column = xasprintf("speedup_%s", phases[i]);
        if (row_has(m->w, column))
            row_real(m->w, column, b->ms[i] / ms[i]);
    }
}

static void time_steps(mixed *m, trainer *t)
{
    model_timed times;
    if (!model_time_steps(m->s, m->w, t, m->s->timing.warmup, &times))
        return;
    fill_speedups(m, trainer_options_of(t), times.median_ms);
    row_int(m->w, "peak_bytes", trainer_memory_of(t).allocated);
}

void mixed_run_timing(mixed *m)
{
    session *s = m->s;
    step_options o;
    char why[256];
    if (!model_case_options(m->c, &o, why, sizeof why)) {
        row_status_set(m->w, ROW_SKIP, "%s", why);
        return;
    }
    o.fusion = device_kind_of(s->dev) == DEVICE_CPU ? FUSION_KERNELS : FUSION_GRAPH;
    if (strcmp(o.precision->name, "fp32") == 0 && !o.split)
        baseline_forget(s, m->c); /* until it has been measured */
    if (!model_verify(s, &o, m->w))
        return;
    phase_set("setup of %s", case_name(m->c));
    trainer *t = model_trainer(s, &o, m->w);
    if (!t)
        return;
    time_steps(m, t);
    trainer_free(t);
}
