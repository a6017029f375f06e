/* SPDX-License-Identifier: MIT */
/* Measured memory next to predicted memory, as columns; see row.h. */
#include "bench/memory/row.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/context.h"
#include "common/core/error.h"
#include "common/core/output.h"
#include "common/train/memory_step.h"

static void fill_kinds(row *w, const int64_t held[MEMORY_KINDS])
{
    char column[64];
    for (int k = 0; k < MEMORY_KINDS; k++) {
        snprintf(column, sizeof column, "%s_bytes", memory_kind_name((memory_kind)k));
        row_int(w, column, held[k]);
    }
}

/* Fills what was held and what was predicted in each phase; returns the worst difference in percent. */
static double fill_phases(row *w, const trainer *t, const memory_step *step, const memory_peaks *p)
{
    const trainer_memory m = trainer_memory_of(t);
    const struct {
        step_phase phase;
        bool there;
        const memory_bytes *predicted;
    } phases[] = {{PHASE_FORWARD, true, &p->forward},
                  {PHASE_BACKWARD, step->backward, &p->backward},
                  {PHASE_OPTIMIZER, step->update, &p->update}};
    double worst = 0;
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        const double held = (double)m.phase_peak[phases[i].phase],
                     predicted = (double)memory_total(phases[i].predicted);
        char column[64];
        if (!phases[i].there)
            continue;
        snprintf(column, sizeof column, "predicted_%s_peak_bytes", step_phase_name(phases[i].phase));
        row_int(w, column, (int64_t)predicted);
        row_int(w, column + strlen("predicted_"), (int64_t)held);
        worst = fmax(worst, 100 * fabs(predicted - held) / held);
    }
    return worst;
}

static memory_bytes predicted_peak(const memory_peaks *p)
{
    const memory_bytes *worst = &p->forward;
    worst = memory_total(&p->backward) > memory_total(worst) ? &p->backward : worst;
    return memory_total(&p->update) > memory_total(worst) ? p->update : *worst;
}

static void fill_peak(row *w, const timeline *x, const memory_peaks *p)
{
    const timeline_moment peak = timeline_peak(x);
    const memory_bytes b = predicted_peak(p);
    const int64_t predicted[MEMORY_KINDS] = {
        [MEMORY_PARAM] = b.param,         [MEMORY_MASTER] = b.master,       [MEMORY_MOMENT1] = b.moment1,
        [MEMORY_MOMENT2] = b.moment2,     [MEMORY_GRAD] = b.grad,           [MEMORY_ACTIVATION] = b.activation,
        [MEMORY_TEMPORARY] = b.temporary, [MEMORY_WORKSPACE] = b.workspace, [MEMORY_OTHER] = b.other};
    double worst = 0;
    for (int k = 0; k < MEMORY_KINDS; k++)
        worst = fmax(worst, 100 * fabs((double)(predicted[k] - peak.held[k])) / (double)peak.total);
    row_int(w, "peak_bytes", peak.total);
    row_int(w, "predicted_bytes", memory_total(&b));
    row_real(w, "err_kinds_pct", worst);
    row_text(w, "peak_phase", step_phase_name(x->events[peak.event].phase));
    row_int(w, "peak_op", x->events[peak.event].op);
    fill_kinds(w, peak.held);
}

static void fill_largest(row *w, const timeline *x, int top, const char *name)
{
    OWNED allocation *largest = xcalloc((size_t)(top > 1 ? top : 1), sizeof *largest);
    const size_t n = timeline_largest(x, largest, (size_t)(top > 1 ? top : 1));
    if (n) {
        const arena_event *e = largest[0].first;
        row_int(w, "largest_bytes", e->bytes);
        row_text(w, "largest", e->name);
        row_text(w, "largest_kind", memory_kind_name(e->kind));
        row_int(w, "largest_block", e->layer);
        row_int(w, "largest_count", largest[0].times);
    }
    if (top > 0)
        say("\nlargest allocations of %s:\n", name);
    for (size_t i = 0; i < n && top > 0; i++) {
        char text[160];
        allocation_describe(&largest[i], text, sizeof text);
        say("%s\n", text);
    }
}

double memory_row_fill(session *s, row *w, const trainer *t, const timeline *x, const char *name)
{
    const model_bench *b = s->user;
    const step_options *o = trainer_options_of(t);
    const memory_step step = memory_step_of(o, b->kernels, b->ctx);
    const memory_peaks p = memory_predict(&step);
    const int64_t saved = timeline_saved_by(x, 0);
    const trainer_memory m = trainer_memory_of(t);
    const double error = fill_phases(w, t, &step, &p);
    fill_peak(w, x, &p);
    fill_largest(w, x, (int)option_int(s->opt, "top"), name);
    row_real(w, "err_pct", error);
    row_int(w, "allocated_bytes", m.allocated);
    row_int(w, "offloaded_bytes", trainer_offloaded_bytes(t));
    row_int(w, "residual_bytes", memory_residual(&step));
    row_int(w, "saved_per_block_bytes", saved);
    row_real(w, "saved_per_token_bytes", (double)saved / ((double)o->batch * o->seq));
    return error;
}
