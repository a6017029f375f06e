/* SPDX-License-Identifier: MIT */
/* Timing steps that time their parts; see measure.h. */
#include <limits.h>
#include <math.h>

#include "common/core/clock.h"
#include "common/record/nvtx.h"
#include "common/session/measure_internal.h"
#include "common/session/profile.h"
#include "common/session/watchdog.h"

enum { HOST = MEASURE_PARTS }; /* of the samples */

typedef struct step_limit {
    int warmup, iters;
    double max_s; /* 0: none */
    bool counts;  /* in the case's conditions */
} step_limit;

static bool take_steps(session *s, const measure_step *step, void *arg, const step_limit *limit,
                       samples x[MEASURE_PARTS + 1], device_window *window)
{
    double measured_ms = 0;
    bool ok = true;
    for (int64_t i = 0; ok && i < (int64_t)limit->warmup + limit->iters; i++) {
        double ms[MEASURE_PARTS] = {0};
        if (i == limit->warmup)
            device_sense_begin(s->dev);
        const double start = host_seconds();
        ok = step->enqueue(arg);
        if (!ok)
            break;
        if (i == limit->warmup - 1)
            device_state_note(s->dev); /* while a step runs, but none that is measured: asking takes the host time */
        step->wait(arg, ms);
        const double host_ms = (host_seconds() - start) * 1e3;
        watchdog_beat();
        if (i < MEASURE_EARLY && step->early && limit->counts)
            step->early(arg, (int)i, host_ms);
        if (i < limit->warmup)
            continue;
        for (int p = 0; p < step->parts; p++)
            samples_add(&x[p], ms[p]);
        samples_add(&x[HOST], host_ms);
        measured_ms += host_ms;
        if (limit->max_s > 0 && measured_ms > limit->max_s * 1e3 && x[HOST].n >= SAMPLES_MIN)
            break;
    }
    *window = device_sense_end(s->dev, limit->counts);
    return ok;
}

static void free_steps(samples x[MEASURE_PARTS + 1])
{
    for (int i = 0; i <= HOST; i++)
        samples_free(&x[i]);
}

static void fill_steps(row *w, const measure_step *step, const samples x[MEASURE_PARTS + 1], measured_steps *out)
{
    out->n = (int64_t)x[HOST].n;
    for (int p = 0; p < step->parts; p++) {
        const stats ms = stats_of(&x[p]);
        out->median_ms[p] = step->names[p] ? ms.median : NAN;
        if (step->names[p])
            columns_times(w, step->names[p], &ms, 1);
    }
    if (step->host_name) {
        const stats host = stats_of(&x[HOST]);
        columns_times(w, step->host_name, &host, 1);
    }
    columns_count(w, "steps", x[HOST].n);
}

bool measure_steps(session *s, row *w, const measure_step *step, void *arg, measured_steps *out)
{
    samples x[MEASURE_PARTS + 1] = {0};
    device_window window;
    measure_begin(w, "steps");
    const bool ok =
        take_steps(s, step, arg, &(step_limit){step->warmup, s->timing.iters, s->timing.max_s, true}, x, &window);
    scope_pop();
    if (ok) {
        fill_steps(w, step, x, out);
        profile_note(s, case_key(row_case(w)), "steps", out->median_ms[step->parts - 1]);
        out->step_j = columns_joules(&window, stats_of(&x[HOST]).mean);
        columns_real(w, "step", "_j", out->step_j);
        measure_again(s, "steps", step->enqueue, arg);
    }
    free_steps(x);
    return ok;
}

bool measure_steps_sustained(session *s, row *w, const measure_step *step, int part, void *arg, measured_steps *out)
{
    const step_limit half = {0, INT_MAX, s->sustain_s / 2, false};
    samples x[MEASURE_PARTS + 1] = {0};
    device_window window;
    *out = (measured_steps){.step_j = NAN};
    out->median_ms[part] = NAN;
    if (!(s->sustain_s > 0))
        return true;
    device_state_hold(s->dev);
    measure_begin(w, "sustained steps");
    bool ok = take_steps(s, step, arg, &half, x, &window);
    free_steps(x);
    ok = ok && take_steps(s, step, arg, &half, x, &window);
    scope_pop();
    if (ok) {
        out->median_ms[part] = stats_of(&x[part]).median;
        out->n = (int64_t)x[part].n;
        out->step_j = columns_joules(&window, stats_of(&x[HOST]).mean);
        columns_sustained(w, "sustained_step", &x[part], 1, &window);
        columns_real(w, "sustained_step", "_j", out->step_j);
    }
    free_steps(x);
    return ok;
}
