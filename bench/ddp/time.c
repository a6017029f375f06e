/* SPDX-License-Identifier: MIT */
/* Timing of a case: warm-up steps one by one, which say how long the phases take; blocks of steps back to back,
 * alternating with blocks of the compute-only step, which is the same without communication; the collectives and AdamW
 * alone.
 *
 * A step lasts from its start to the start of the next one on the compute stream, so that all-gathers which run
 * under the next forward count where they are waited for. Step i of a block is that of the slowest rank. */
#include <math.h>
#include <stdlib.h>

#include "bench/ddp/time.h"
#include "bench/model/timing.h"
#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/record/nvtx.h"
#include "common/session/measure.h"
#include "common/session/watchdog.h"
#include "common/train/update.h"

enum { PHASE_STEPS = 5, ALONE_CALLS = 10, BLOCKS = 2, LONG_BLOCKS = 4, LONG_ITERS = 40, BLOCK_MIN = 2 };
/* Three steps of more than LONG_STEP_MS have warmed a GPU up, and the last two of them say how long its phases take. */
enum { LONG_STEP_MS = 200, LONG_WARMUP = 3, LONG_PHASE_STEPS = 2, LONG_ALONE_CALLS = 4 };

/* Other measurements than steps repeat as often as they like, but at most --iters times. */
static int at_most_iters(const ddp_case *k, int n)
{
    return n < k->s->timing.iters ? n : k->s->timing.iters;
}

void ddp_times_free(ddp_times *m)
{
    samples_free(&m->step);
    samples_free(&m->compute);
    samples_free(&m->own);
    samples_free(&m->energy_w);
}

static double mean_loss(const ddp_case *k, replica *r)
{
    return launch_sum(k->l, "loss", r->member ? trainer_loss(r->t) : 0, k->ranks) / k->ranks;
}

/* ---- warm-up, phases ---- */

/* Times of steps one by one: this rank's forward, backward, the rest, the waits in that rest, and the waits for units to
 * be gathered and for gradients to be reduced. */
enum { PHASE_TIMES = 6 };
typedef struct phase_samples {
    samples of[PHASE_TIMES];
} phase_samples;

/* A step whose phases are timed. Events in a graph cannot be. */
static void phase_step(replica *r, phase_samples *x)
{
    const bool events = !r->graphs[1];
    parallel_instrument(r->p, events);
    replica_step(r);
    const step_times t = trainer_times(r->t);
    const double ms[PHASE_TIMES] = {t.forward,
                                    t.backward,
                                    t.optimizer,
                                    events ? parallel_waits_ms(r->p, WAIT_TAIL) : NAN,
                                    events ? parallel_waits_ms(r->p, WAIT_GATHER) : NAN,
                                    events ? parallel_waits_ms(r->p, WAIT_REDUCED) : NAN};
    for (int i = 0; i < PHASE_TIMES; i++)
        samples_add(&x->of[i], ms[i]);
    parallel_instrument(r->p, false);
}

/* Returns an estimate of a step's milliseconds, the same on all ranks, and adds the phases of the second step and later
 * ones to *x. Sets *ok to false if the step cannot be captured. */
static double warm_up(ddp_case *k, replica *r, ddp_times *m, phase_samples *x, bool *ok)
{
    int steps = (int)option_int(k->s->opt, "warmup");
    double last_ms = 0;
    for (int i = 0; i < steps; i++) {
        const double start = host_seconds();
        if (i > 0 && r->member)
            phase_step(r, x);
        else
            replica_step(r);
        replica_settle(r);
        last_ms = (host_seconds() - start) * 1e3;
        if (i == 2)
            m->loss_third = mean_loss(k, r);
        if (i + 1 == LONG_WARMUP && !option_given(k->s->opt, "warmup") &&
            ddp_most(k, "estimate", last_ms) > LONG_STEP_MS)
            steps = LONG_WARMUP;
        if (i > 0)
            continue;
        m->loss_first = mean_loss(k, r); /* an exchange after the first step, which loads kernels and connects ranks */
        *ok = !k->graph || ddp_capture(k, r);
        if (!*ok)
            return 0;
    }
    return ddp_most(k, "estimate", last_ms);
}

/* Medians of the phases, of the rank that waits least. */
static void phases(ddp_case *k, replica *r, phase_samples *x, ddp_times *m)
{
    const int wanted = at_most_iters(k, m->long_step ? LONG_PHASE_STEPS : PHASE_STEPS);
    double mine[PHASE_TIMES] = {0};
    for (int i = (int)x->of[0].n; i < wanted && r->member; i++) /* where --warmup was too short for them */
        phase_step(r, x);
    replica_settle(r);
    for (int i = 0; i < PHASE_TIMES; i++) {
        mine[i] = stats_of(&x->of[i]).median;
        samples_free(&x->of[i]);
    }
    OWNED double *all = launch_gathered(k->l, "phases", mine, sizeof mine);
    const double *least = all;
    for (int i = 1; i < k->ranks; i++)
        least = all[PHASE_TIMES * i + 3] < least[3] ? all + PHASE_TIMES * i : least;
    m->phase_rank = (int)((least - all) / PHASE_TIMES);
    m->forward = least[0], m->backward = least[1], m->after = least[2], m->tail = least[3];
    m->gather_wait = least[4], m->reduced_wait = least[5];
}

/* ---- blocks ---- */

/* Times n steps, if asked after one that is not measured. */
static device_window run_block(ddp_case *k, replica *r, bool lead, int n, bool counts, double *ms)
{
    device_event **begin = marks_begin(r->at.d, n);
    if (lead)
        replica_step(r);
    device_sense_begin(r->at.d);
    for (int i = 0; i < n; i++) {
        device_event_record(r->at.d, begin[i]);
        replica_step(r);
    }
    device_event_record(r->at.d, begin[n]);
    device_state_note(k->s->dev); /* while steps run, after the last one has been enqueued */
    replica_settle(r);
    const device_window window = device_sense_end(r->at.d, counts);
    marks_end(r->at.d, begin, n, ms);
    return window;
}

/* A step that is not measured leads a block, so that communication of the step before is in flight, and a short step finds
 * the GPU busy. A long one without communication needs neither. */
static void block(ddp_case *k, replica *r, bool communicating, int n, ddp_times *m)
{
    OWNED double *mine = xcalloc((unsigned long)n, sizeof *mine);
    replica_communicate(r, communicating);
    launch_barrier(k->l, "block");
    scope_push(communicating ? "steps" : "compute-only steps");
    device_window window = {NAN, NAN, NAN};
    if (r->member)
        window = run_block(k, r, communicating || !m->long_step, n, communicating, mine);
    scope_pop();
    OWNED double *slowest = launch_most_each(k->l, "steps", mine, n, k->ranks);
    for (int i = 0; i < n; i++)
        samples_add(communicating ? &m->step : &m->compute, slowest[i]);
    for (int i = 0; i < n && communicating; i++)
        samples_add(&m->own, mine[i]);
    if (communicating)
        samples_add(&m->energy_w, window.energy_w);
}

/* The number of steps in a block. */
static int block_steps(const ddp_case *k, int blocks, double estimate_ms)
{
    const int iters = k->s->timing.iters, wanted = (iters + blocks - 1) / blocks;
    const double fit = k->s->timing.max_s * 1e3 / (2 * blocks * estimate_ms); /* with the compute-only ones */
    if (!(k->s->timing.max_s > 0) || fit >= wanted)
        return wanted;
    const int least = wanted < BLOCK_MIN ? wanted : BLOCK_MIN;
    return fit < least ? least : (int)fit;
}

/* The ranks must still have the same parameters. Compute-only steps make them differ, so the check follows the first block. */
static bool check_equal(ddp_case *k, replica *r, ddp_times *m)
{
    m->loss_last = mean_loss(k, r);
    if (!option_flag(k->s->opt, "check"))
        return true;
    m->checksum = replica_checksum(r);
    const int odd = replica_odd_rank(r, m->checksum);
    if (odd >= 0)
        row_status_set(k->w, ROW_FAIL, "after the first timed block the parameters of rank %d are not those of rank 0",
                       odd);
    else if (!isfinite(m->loss_last))
        row_status_set(k->w, ROW_FAIL, "the loss is %g after the first timed block", m->loss_last);
    return row_status_get(k->w) == ROW_OK;
}

/* ---- alone ---- */

/* Gradients are zeros, since sums of sums would overflow. The first call is not measured. */
static void time_collectives(replica *r, int calls, double *ms)
{
    const trainer_state s = trainer_state_of(r->t);
    device_event **at = marks_begin(r->at.d, calls);
    device_memset(r->at.d, s.grad, 0, (size_t)replica_grad_elements(r) * (size_t)sb_dtype_bytes(s.grad_dtype));
    for (int i = 0; i <= calls; i++) {
        replica_collectives_alone(r);
        device_event_record(r->at.d, at[i]);
        watchdog_beat();
    }
    device_sync(r->at.d);
    marks_end(r->at.d, at, calls, ms);
}

static double collectives_alone(ddp_case *k, replica *r, int calls)
{
    double mine[ALONE_CALLS] = {0};
    samples x = {0};
    launch_barrier(k->l, "collectives alone");
    if (r->member)
        time_collectives(r, calls, mine);
    OWNED double *slowest = launch_most_each(k->l, "collectives alone", mine, calls, k->ranks);
    for (int i = 0; i < calls; i++)
        samples_add(&x, slowest[i]);
    const double ms = stats_of(&x).median;
    samples_free(&x);
    return ms;
}

static bool run_optimizer(void *arg)
{
    return trainer_optimizer(arg);
}

static double optimizer_alone(ddp_case *k, replica *r, int calls)
{
    measure_how how = measure_default(k->s);
    how.dev = r->at.d;
    how.timing.warmup = 3;
    how.timing.iters = calls;
    how.timing.settle_s = 0; /* steps came before it */
    double ms = 0;
    if (r->member && !measure_with(k->s, NULL, "AdamW alone", &how, run_optimizer, r->t, &ms))
        launch_fail(k->l, EXIT_CODE_FAILURE, "AdamW alone: %s", sb_last_message());
    return ddp_most(k, "AdamW alone", ms);
}

/* ---- all of it ---- */

bool ddp_time(ddp_case *k, replica *r, double free_before, ddp_times *m)
{
    const int blocks = at_most_iters(k, k->s->timing.iters < LONG_ITERS ? BLOCKS : LONG_BLOCKS);
    phase_samples x = {0};
    bool ok = true;
    *m = (ddp_times){.tail = NAN, .used_bytes = NAN, .loss_third = NAN};
    phase_set("warm-up of %s", case_name(k->c));
    scope_push("warm-up");
    const double estimate_ms = warm_up(k, r, m, &x, &ok);
    scope_pop();
    if (!ok)
        return false;
    m->long_step = estimate_ms > LONG_STEP_MS;
    phases(k, r, &x, m);
    const int steps = block_steps(k, blocks, estimate_ms);
    phase_set("timing of %s", case_name(k->c));
    for (int b = 0; b < blocks; b++) {
        block(k, r, true, steps, m);
        if (b == 0 && !check_equal(k, r, m))
            return false;
        block(k, r, false, steps, m);
    }
    replica_communicate(r, true);
    const double used = free_before - (double)device_free_bytes(r->at.d);
    const double most = ddp_most(k, "device memory", r->member ? used : 0);
    m->used_bytes = device_kind_of(r->at.d) == DEVICE_CPU ? NAN : most;
    phase_set("timing collectives alone of %s", case_name(k->c));
    const int calls = at_most_iters(k, m->long_step ? LONG_ALONE_CALLS : ALONE_CALLS);
    m->comm_alone = collectives_alone(k, r, calls);
    m->opt_alone = optimizer_alone(k, r, calls);
    return true;
}
