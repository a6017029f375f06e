/* SPDX-License-Identifier: MIT */
/* The updates that strategies of data parallelism ask a trainer for, and AdamW alone. */
#include "common/train/update.h"

#include "common/step/optimizer.h"
#include "common/step/units.h"
#include "common/train/internal.h"

bool trainer_optimizer(trainer *t)
{
    step *s = &t->step;
    s->status = SB_OK;
    arena_run_begin(s->arena); /* not a walk of the step: only its pointers are used, and no run_end checks it */
    optimizer_begin(s, s->main);
    optimizer_range(s, 0, s->o.state_elements ? s->o.state_elements : s->params->elements, 0, 0, s->main);
    return s->status == SB_OK;
}

void trainer_add_grads(trainer *t, void *to, const void *from, int64_t n, void *stream)
{
    units_sum(&t->step, to, from, t->step.grad_dtype, true, n, stream);
}

void trainer_cast_grads(trainer *t, void *to, const void *from, int64_t n, void *stream)
{
    units_sum(&t->step, to, from, t->step.made_dtype, false, n, stream);
}

void trainer_update_begin(trainer *t, void *stream)
{
    optimizer_begin(&t->step, stream);
}

void trainer_update_range(trainer *t, int64_t first, int64_t count, int64_t state_first, int max_blocks, void *stream)
{
    optimizer_range(&t->step, first, count, state_first, max_blocks, stream);
}

void trainer_fused_update(trainer *t, sb_direct_adamw p, int64_t first, int64_t count, int64_t state_first,
                          int max_blocks, void *stream)
{
    optimizer_peer_range(&t->step, p, first, count, state_first, max_blocks, stream);
}

void trainer_update_all(trainer *t)
{
    optimizer_all(&t->step);
}

void trainer_range_norm(trainer *t, int64_t first, int64_t count, int64_t state_first, float *norm, void *stream)
{
    optimizer_range_norm(&t->step, first, count, state_first, norm, stream);
}

void trainer_take_norms(trainer *t, const float *norms, int n, void *stream)
{
    optimizer_take_norms(&t->step, norms, n, stream);
}

bool trainer_update_wants_all(const trainer *t)
{
    return optimizer_wants_statistics(&t->step);
}

double trainer_optimizer_bytes(const trainer *t)
{
    const step *s = &t->step;
    const precision *p = s->o.precision;
    const double param = s->param_element, master = precision_master_bytes(p), moment = s->moment_element;
    /* Beside an fp32 master the 16-bit parameter is only written. */
    const double reads = (p->master == SB_MASTER_FP32 ? 0 : param) + master + s->grad_element + 2 * moment;
    const double writes = param + master + 2 * moment;
    return (reads + writes) * (double)s->params->elements;
}
