/* SPDX-License-Identifier: MIT */
/* What feeds the steps of a run: the table of rates, tokens from a thread that is ahead, and the history that stays on the device
 * until it is asked for. The host is at most RUN_AHEAD steps ahead of the device, and waits for nothing else. */
#include <math.h>
#include <stdlib.h>

#include "bench/run/run.h"
#include "common/core/error.h"
#include "common/train/feed.h"

static size_t micro(const run *x)
{
    return (size_t)step_micro_batches(&x->k.o);
}

static float *rates_of(const run *x)
{
    float *rates = xmalloc((size_t)x->room * sizeof *rates);
    const int64_t shift = x->fault == FAULT_RATE;
    for (int64_t i = 0; i < x->room; i++)
        rates[i] = (float)schedule_rate(&x->schedule, i + shift);
    return rates;
}

/* Pinned memory, and the tables of the trainer. */
static bool take_memory(run *x)
{
    device *d = x->r->at.d;
    const size_t tokens = 2 * (size_t)x->batch * (size_t)x->k.o.seq * sizeof(int32_t);
    OWNED float *rates = x->rung >= RUNG_SCHEDULE ? rates_of(x) : NULL;
    bool ok = trainer_keep_history(x->r->t, rates, x->room);
    ok = ok && (x->losses = device_host_malloc(d, (size_t)x->room * micro(x) * sizeof *x->losses)) &&
         (x->norms = device_host_malloc(d, (size_t)x->room * sizeof *x->norms));
    for (int i = 0; i < LOADER_RING && ok; i++)
        ok = (x->load.ring[i] = device_host_malloc(d, tokens)) != NULL;
    return ok;
}

static void make_events(run *x)
{
    device *d = x->r->at.d;
    for (int i = 0; i < RUN_AHEAD; i++)
        x->done[i] = device_event_create(d);
    for (int i = 0; i < RUN_MARKS; i++)
        x->begin[i] = device_event_create(d);
    x->log.arrived = device_event_create(d);
}

static void describe_load(run *x)
{
    const int rank = launch_rank(x->k.l);
    x->load.from = x->data;
    x->load.seq = x->k.o.seq, x->load.vocab = x->k.o.config.vocab;
    x->load.batch = x->batch, x->load.global_batch = x->batch * x->ranks;
    x->load.rank_first = x->fault == FAULT_RANK ? 0 : rank * x->batch;
    x->load.step = x->first + (x->fault == FAULT_POSITION || x->fault == FAULT_LOST_POSITION);
    x->load.same = x->overfit;
    x->load.delay_s = option_real(x->k.s->opt, "data-delay") * 1e-3;
}

void run_data_open(run *x)
{
    char why[300] = "";
    bool ok = true;
    if (x->rung >= RUNG_DATA) {
        x->data = data_open(case_text(x->k.c, "data"), (int)option_int(x->k.s->opt, "symbols"), x->k.o.seq, x->k.o.seed,
                            why, sizeof why);
        ok = x->data;
    }
    if (!launch_all(x->k.l, "data", ok))
        launch_fail(x->k.l, EXIT_CODE_USAGE, "--data: %s", ok ? "another rank can't open it" : why);
}

bool run_open(run *x)
{
    x->per_step = xcalloc((size_t)x->room * PER_STEP, sizeof *x->per_step);
    for (int64_t i = 0; i < x->first; i++) {
        x->per_step[i * PER_STEP + PER_STEP_LOSS] = x->past[i].loss;
        x->per_step[i * PER_STEP + PER_STEP_MS] = NAN;
        x->per_step[i * PER_STEP + PER_STEP_SURPRISE] = x->past[i].surprise;
    }
    make_events(x);
    if (x->data && x->fault == FAULT_REPEAT)
        data_plant_repeat(x->data);
    describe_load(x);
    const bool ok = !x->r->member || take_memory(x);
    if (!ddp_agree(&x->k, "memory of a run", ok, "there is no memory for tokens and history"))
        return false;
    if (x->r->member && x->data)
        x->loader = loader_start(&x->load);
    return true;
}

void run_close(run *x)
{
    device *d = x->r->at.d;
    loader_stop(x->loader);
    replica_settle(x->r);
    for (int i = 0; i < LOADER_RING; i++)
        device_host_free(d, x->load.ring[i]);
    for (int i = 0; i < RUN_AHEAD; i++)
        device_event_destroy(d, x->done[i]);
    for (int i = 0; i < RUN_MARKS; i++)
        device_event_destroy(d, x->begin[i]);
    device_event_destroy(d, x->log.arrived);
    device_host_free(d, x->losses);
    device_host_free(d, x->norms);
    samples_free(&x->bare);
    samples_free(&x->fed);
    free(x->per_step);
    free(x->all);
}

static void stage_tokens(run *x)
{
    const loader_batch *b = loader_take(x->loader, &x->waited_s);
    if (b->code)
        launch_fail(x->k.l, b->code, "--data %s: %s", case_text(x->k.c, "data"), b->problem);
    x->per_step[x->at * PER_STEP + PER_STEP_SURPRISE] = b->surprise;
    trainer_stage_tokens(x->r->t, x->fault == FAULT_LEAK ? b->targets : b->ids,
                         x->fault == FAULT_TARGET ? b->ids : b->targets);
}

void run_times(run *x, int64_t until)
{
    device *d = x->r->at.d;
    for (; x->r->member && x->timed < until; x->timed++)
        x->per_step[x->timed * PER_STEP + PER_STEP_MS] =
            device_event_ms(d, x->begin[x->timed % RUN_MARKS], x->begin[(x->timed + 1) % RUN_MARKS]);
}

void run_step(run *x)
{
    device *d = x->r->at.d;
    const int slot = (int)(x->at % RUN_AHEAD);
    if (!x->r->member) {
        x->at++;
        return;
    }
    if (x->at - x->first >= RUN_AHEAD) {
        device_event_sync(d, x->done[slot]);
        if (x->loader)
            loader_give(x->loader);
    }
    if (x->at - x->timed > RUN_MARKS / 2)
        run_times(x, x->at - RUN_AHEAD - 1);
    device_event_record(d, x->begin[x->at % RUN_MARKS]);
    x->per_step[x->at * PER_STEP + PER_STEP_SURPRISE] = NAN;
    if (x->loader)
        stage_tokens(x);
    replica_step(x->r);
    trainer_keep_loss(x->r->t, x->at);
    device_event_record(d, x->done[slot]);
    x->at++;
    if (x->rung == RUNG_WAIT)
        trainer_loss(x->r->t);
}
