/* SPDX-License-Identifier: MIT */
/* Memory of a replica. Counted: parameters, gradients and state as a framework that allocates them at their first use
 * would hold them, beside a formula. Measured: what the driver has given out since before the replica was made, beside what
 * the replica planned to take. Contexts and kernels are loaded before (by the check, unless it is switched off); what the
 * strategy takes is measured apart: communicators allocate when they are made and when they are first used. */
#include "bench/ddp/row.h"

#include <math.h>

/* ---- measured ---- */

/* Comparable only with another value of the same device. */
static double held(const ddp_case *k)
{
    if (device_kind_of(k->s->dev) == DEVICE_CPU)
        return (double)memory_current(k->s->mem);
    return -(double)device_free_bytes(k->s->dev);
}

void ddp_held_start(const ddp_case *k, ddp_held *h)
{
    *h = (ddp_held){.start = held(k)};
}

void ddp_held_init(const ddp_case *k, replica *r, ddp_held *h)
{
    const bool cpu = device_kind_of(k->s->dev) == DEVICE_CPU;
    if (!r->member)
        return;
    const trainer_state s = trainer_state_of(r->t);
    device_memset(k->s->dev, s.grad, 0, (size_t)replica_grad_elements(r) * (size_t)sb_dtype_bytes(s.grad_dtype));
    parallel_collectives_alone(r->p);
    replica_settle(r);
    h->comm = cpu ? NAN : held(k) + (double)r->free_with_model;
    h->init = held(k) - h->start - (cpu ? 0 : h->comm);
    r->hold = true;
    replica_step(r);
    replica_settle(r);
    r->hold = false;
    h->before = held(k) - h->start - (cpu ? 0 : h->comm);
}

void ddp_held_after(const ddp_case *k, ddp_held *h)
{
    h->after = held(k) - h->start - (isnan(h->comm) ? 0 : h->comm);
}

/* ---- counted ---- */

/* The three points are those of a framework that allocates gradients and state at their first use. */
static double resident(const trainer_memory *m, memory_kind kind)
{
    return (double)m->resident[kind];
}

static double off_pct(double measured, double predicted)
{
    return 100 * fabs(measured - predicted) / predicted;
}

static void fill_counted(ddp_case *k, const replica *r)
{
    const bool sliced = r->plan->s->gradients == GRADIENTS_SLICED;
    double param = 0, grad = 0, state = 0;
    if (r->member) {
        const trainer_memory m = trainer_memory_of(r->t);
        param = resident(&m, MEMORY_PARAM);
        grad = resident(&m, MEMORY_GRAD);
        if (grad == 0) /* they lie with the activations */
            grad = (double)arena_peak(trainer_arena(r->t), PHASE_OPTIMIZER, MEMORY_GRAD);
        state = resident(&m, MEMORY_MASTER) + resident(&m, MEMORY_MOMENT1) + resident(&m, MEMORY_MOMENT2);
    }
    param = ddp_most(k, "parameters", param), grad = ddp_most(k, "gradients", grad),
    state = ddp_most(k, "state", state);
    if (!r->member)
        return;
    const precision *x = r->o.precision;
    const double parts = r->plan->sharded ? r->plan->slices : 1, whole = (double)parallel_plan_whole(r->plan);
    const double all = (double)r->plan->elements, slice = (all - whole) / parts + whole;
    const double p = sb_dtype_bytes(x->param) * (r->plan->s->parameters == PARAMETERS_RESIDENT ? all : slice);
    const double g = sb_dtype_bytes(trainer_state_of(r->t).grad_dtype) * (sliced ? slice : all);
    const double held = precision_master_bytes(x) + 2 * sb_dtype_bytes(moments_dtype(x, r->o.moments));
    const double init = p, before = p + g, after = before + held * slice;
    row_real(k->w, "param_bytes", param);
    row_real(k->w, "grad_bytes", grad);
    row_real(k->w, "state_bytes", state);
    row_real(k->w, "after_init_bytes", param);
    row_real(k->w, "before_step_bytes", param + grad);
    row_real(k->w, "after_step_bytes", param + grad + state);
    row_real(k->w, "predicted_init_bytes", init);
    row_real(k->w, "predicted_before_bytes", before);
    row_real(k->w, "predicted_after_bytes", after);
    row_real(k->w, "err_pct",
             fmax(off_pct(param, init), fmax(off_pct(param + grad, before), off_pct(param + grad + state, after))));
}

static void fill_measured(ddp_case *k, const replica *r, const ddp_held *h)
{
    const double planned = r->member ? (double)trainer_memory_of(r->t).allocated : 1;
    double off = 0;
    if (r->member)
        off = fmax(off_pct(h->init, planned), fmax(off_pct(h->before, planned), off_pct(h->after, planned)));
    row_real(k->w, "comm_bytes", ddp_most(k, "communicators' memory", r->member ? h->comm : 0));
    row_real(k->w, "measured_after_init_bytes", ddp_most(k, "memory after set-up", h->init));
    row_real(k->w, "measured_before_step_bytes", ddp_most(k, "memory before an update", h->before));
    row_real(k->w, "measured_after_step_bytes", ddp_most(k, "memory after steps", h->after));
    row_real(k->w, "err_measured_pct", ddp_most(k, "deviation of memory", off));
}

/* The worst moments of a step, of the rank that needs most. */
static void fill_phases(ddp_case *k, const replica *r)
{
    trainer_memory m = {.arena_bytes = 0};
    double gathered = 0;
    if (r->member) {
        m = trainer_memory_of(r->t);
        for (int phase = PHASE_FORWARD; phase < STEP_PHASES; phase++)
            gathered = fmax(gathered, (double)arena_peak(trainer_arena(r->t), (step_phase)phase, MEMORY_PARAM));
    }
    row_real(k->w, "forward_peak_bytes", ddp_most(k, "forward", (double)m.phase_peak[PHASE_FORWARD]));
    row_real(k->w, "backward_peak_bytes", ddp_most(k, "backward", (double)m.phase_peak[PHASE_BACKWARD]));
    row_real(k->w, "update_peak_bytes", ddp_most(k, "update", (double)m.phase_peak[PHASE_OPTIMIZER]));
    row_real(k->w, "gathered_peak_bytes", ddp_most(k, "gathered", gathered));
}

void ddp_fill_memory(ddp_case *k, const replica *r, const ddp_held *h)
{
    fill_counted(k, r);
    if (ddp_has_column(k, "gathered_peak_bytes"))
        fill_phases(k, r);
    fill_measured(k, r, h);
}
