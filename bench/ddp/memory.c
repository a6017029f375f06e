/* SPDX-License-Identifier: MIT */
/* What a rank holds of a model with its state whole or in parts: by the trainer's own accounting, and by the formula.
 * Everything is taken at the start here; the three points are those of a framework that takes gradients and state when
 * they are first wanted. */
#include <math.h>

#include "bench/ddp/ddp.h"

static double resident(const trainer_memory *m, memory_kind kind)
{
    return (double)m->resident[kind];
}

static double off_pct(double measured, double predicted)
{
    return 100 * fabs(measured - predicted) / predicted;
}

void ddp_fill_memory(ddp_case *k, const replica *r)
{
    double param = 0, grad = 0, state = 0;
    if (r->member) {
        const trainer_memory m = trainer_memory_of(r->t);
        param = resident(&m, MEMORY_PARAM);
        grad = (double)arena_peak(trainer_arena(r->t), PHASE_OPTIMIZER, MEMORY_GRAD);
        state = resident(&m, MEMORY_MASTER) + resident(&m, MEMORY_MOMENT1) + resident(&m, MEMORY_MOMENT2);
    }
    param = ddp_most(k, "parameters", param), grad = ddp_most(k, "gradients", grad),
    state = ddp_most(k, "state", state);
    if (!r->member)
        return;
    const precision *x = r->o.precision;
    const double elements = (double)r->plan->elements, parts = r->plan->sharded ? k->ranks : 1;
    const double p = sb_dtype_bytes(x->param), g = sb_dtype_bytes(trainer_grad_dtype(r->t));
    const double held = precision_master_bytes(x) + 2 * sb_dtype_bytes(x->moments);
    const double init = p * elements, before = (p + g) * elements, after = before + held * elements / parts;
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
