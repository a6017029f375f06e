/* SPDX-License-Identifier: MIT */
/* Timing a call for a row; see measure.h. */
#include <limits.h>
#include <math.h>

#include "common/core/error.h"
#include "common/record/nvtx.h"
#include "common/session/measure_internal.h"
#include "common/session/profile.h"

void measure_begin(const row *w, const char *name)
{
    if (w)
        phase_set("timing %s of %s", name, case_name(row_case(w)));
    else
        phase_set("timing %s", name);
    scope_push(name);
}

void measure_again(session *s, const char *name, enqueue *fn, void *arg)
{
    if (s->after_measure)
        s->after_measure(s, name, fn, arg);
}

measure_how measure_default(const session *s)
{
    return (measure_how){.dev = s->dev, .timing = s->timing, .calls = 1};
}

bool measure_with(session *s, row *w, const char *name, const measure_how *how, enqueue *fn, void *arg,
                  double *median_ms)
{
    samples x = {0};
    const char *used;
    measurement m = {.d = how->dev,
                     .t = &how->timing,
                     .fn = fn,
                     .arg = arg,
                     .out = &x,
                     .sensed = how->dev == s->dev,
                     .counts = true};
    measure_begin(w, name);
    const bool ok = sampling_run(&m, &used);
    scope_pop();
    if (ok) {
        const stats ms = stats_of(&x);
        *median_ms = ms.median / how->calls;
        if (w) {
            columns_times(w, name, &ms, how->calls);
            columns_count(w, name, ms.n);
            columns_timer(w, name, used);
            profile_note(s, case_key(row_case(w)), name, ms.median);
            columns_energy(w, name, how, columns_joules(&m.window, ms.mean) / how->calls);
        }
        measure_again(s, name, fn, arg);
    }
    samples_free(&x);
    return ok;
}

bool measure(session *s, row *w, const char *name, enqueue *fn, void *arg, double *median_ms)
{
    const measure_how how = measure_default(s);
    return measure_with(s, w, name, &how, fn, arg, median_ms);
}

/* ---- the steady state ---- */

/* Half of the time for the GPU to settle, half to measure. */
static timing half_of(const session *s, const timing *t)
{
    timing half = *t;
    half.iters = INT_MAX;
    half.max_s = s->sustain_s / 2;
    half.warmup = 0;
    half.settle_s = 0; /* the first half does that */
    return half;
}

bool measure_sustained(session *s, row *w, const char *name, const measure_how *how, enqueue *fn, void *arg,
                       double *median_ms)
{
    const timing half = half_of(s, &how->timing);
    samples x = {0};
    const char *used;
    measurement m = {.d = how->dev, .t = &half, .fn = fn, .arg = arg, .out = &x, .sensed = how->dev == s->dev};
    *median_ms = NAN;
    if (!(s->sustain_s > 0))
        return true;
    device_state_hold(s->dev);
    measure_begin(w, name);
    bool ok = sampling_run(&m, &used);
    samples_clear(&x);
    m.total_ms = 0;
    ok = ok && sampling_run(&m, &used);
    scope_pop();
    if (ok) {
        *median_ms = stats_of(&x).median / how->calls;
        columns_sustained(w, name, &x, how->calls, &m.window);
        columns_energy(w, name, how, columns_joules(&m.window, stats_of(&x).mean) / how->calls);
        if (how->flops > 0)
            columns_real(w, name, "_tflops", how->flops / (*median_ms * 1e9));
    }
    samples_free(&x);
    return ok;
}
