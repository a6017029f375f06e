/* SPDX-License-Identifier: MIT */
/* The steps of a run, each of which is timed without a wait, and the ladder after it; see run.h. A step lasts from its begin to the
 * begin of the next one on the step's stream; of several ranks it is that of the slowest. */
#include <stdlib.h>

#include "bench/model/timing.h"
#include "bench/run/save.h"
#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/record/nvtx.h"
#include "common/session/watchdog.h"

enum { BLOCKS = 4 };

/* The time of the last step needs an end. */
static void finish_times(run *x)
{
    if (x->r->member)
        device_event_record(x->r->at.d, x->begin[x->at % RUN_MARKS]);
    replica_settle(x->r);
    run_times(x, x->at);
}

int64_t run_counted(const run *x)
{
    return x->first + x->warmup < x->steps ? x->first + x->warmup : x->steps - 1;
}

bool run_all_steps(run *x)
{
    phase_set("run of %s", case_name(x->k.c));
    scope_push("run");
    bool ok = true;
    launch_defer(x->k.l, x->rung == RUNG_SAVE);
    for (int64_t i = x->first; i < x->steps && ok; i++) {
        if (i == run_counted(x)) {
            replica_settle(x->r);
            launch_barrier(x->k.l, "run");
            x->start_s = host_seconds();
            x->waited_before_s = x->waited_s;
            x->log.waited_s = 0;
            if (x->rung >= RUNG_LOG)
                device_sense_begin(x->r->at.d);
        }
        run_step(x);
        if (i == x->first && x->k.graph) {
            replica_settle(x->r);
            ok = ddp_capture(&x->k, x->r);
            replica_communicate(x->r, true);
        }
        if (ok && x->rung >= RUNG_LOG)
            run_log_step(x);
        if (ok && x->rung == RUNG_SAVE)
            run_save_step(x);
    }
    if (ok) {
        finish_times(x);
        x->wall_s = host_seconds() - x->start_s;
        run_log_rest(x);
        x->all =
            launch_gathered(x->k.l, "steps of a run", x->per_step, (size_t)x->steps * PER_STEP * sizeof *x->per_step);
    }
    device_sense_end(x->r->at.d, true);
    if (ok && x->rung == RUNG_SAVE)
        ok = run_save_last(x);
    launch_defer(x->k.l, false);
    scope_pop();
    return ok;
}

/* ---- the ladder ---- */

typedef enum block_kind { BLOCK_BARE, BLOCK_FED, BLOCK_SAVING } block_kind;

/* Returns the milliseconds of all steps. The first one of BLOCK_SAVING comes behind a save; its steps are no samples. */
static double block(run *x, block_kind kind, int n)
{
    const bool fed = kind != BLOCK_BARE, logs = fed && x->rung >= RUNG_LOG;
    double sum = 0;
    device *d = x->r->at.d;
    device_event **begin = marks_begin(d, n);
    OWNED double *mine = xcalloc((size_t)n, sizeof *mine);
    launch_barrier(x->k.l, "block");
    if (logs)
        device_sense_begin(d);
    for (int i = -1; i < n; i++) { /* the first one leads in */
        if (i >= 0)
            device_event_record(d, begin[i]);
        if (i == 0 && kind == BLOCK_SAVING)
            run_save_begin(x);
        if (fed)
            run_step(x);
        else
            replica_step(x->r);
        if (logs)
            run_log_step(x);
    }
    device_event_record(d, begin[n]);
    replica_settle(x->r);
    device_sense_end(d, false);
    marks_end(d, begin, n, x->r->member ? mine : NULL);
    OWNED double *slowest = launch_most_each(x->k.l, "block of steps", mine, n, x->k.ranks);
    for (int i = 0; i < n; i++) {
        sum += slowest[i];
        if (kind != BLOCK_SAVING)
            samples_add(fed ? &x->fed : &x->bare, slowest[i]);
    }
    if (kind == BLOCK_SAVING)
        run_save_end(x);
    watchdog_beat();
    return sum;
}

/* A block with a save against the one before it without: what a save costs, spread over the steps between two. */
static void saving_block(run *x, double without_ms, int n)
{
    const double cost_ms = block(x, BLOCK_SAVING, n) - without_ms;
    samples_add(&x->save.cost_ms, cost_ms);
    for (int i = 0; i < n; i++)
        x->fed.x[x->fed.n - 1 - (size_t)i] += cost_ms / (double)x->save.every;
}

void run_blocks(run *x)
{
    const int n = (x->k.s->timing.iters + BLOCKS - 1) / BLOCKS;
    phase_set("ladder of %s", case_name(x->k.c));
    scope_push("ladder");
    if (x->rung == RUNG_SAVE)
        run_save_apart(x, true);
    for (int b = 0; b < BLOCKS && n > 0; b++) {
        block(x, BLOCK_BARE, n);
        const double without_ms = block(x, BLOCK_FED, n);
        if (x->rung == RUNG_SAVE)
            saving_block(x, without_ms, n);
    }
    if (x->rung == RUNG_SAVE)
        run_save_apart(x, false);
    scope_pop();
}
