/* SPDX-License-Identifier: MIT */
/* SwiGLU within the matrix product ahead of it, where the backend can: forward with gate's and up's, backward with the one
 * that makes its gradient. */
#include "common/train/step_internal.h"

static sb_swiglu_matmul shape_of(const trainer_options *o)
{
    const model_config *c = &o->config;
    return (sb_swiglu_matmul){
        .dtype = o->precision->compute, .rows = o->batch * o->seq, .f = c->d_ff, .d = c->d_model, .lda = c->d_model};
}

bool trainer_fuses_swiglu(const trainer_options *o, const sb_kernels *k, sb_context *ctx)
{
    const sb_swiglu_matmul p = shape_of(o);
    return o->fusion != FUSION_NONE && !o->swiglu_apart && o->precision->activations == p.dtype &&
           k->train->swiglu_matmul_supported(ctx, &p) == SB_OK;
}

void swiglu_matmul_forward(trainer *t, int layer, arena_slot x, arena_slot gate_up, arena_slot h)
{
    sb_swiglu_matmul p = shape_of(&t->o);
    p.x = step_pointer(t, x);
    p.w13 = step_param(t, PARAM_W1, layer);
    p.gate_up = step_pointer(t, gate_up);
    p.h = step_pointer(t, h);
    if (step_go(t))
        step_done(t, t->k->train->swiglu_matmul_forward(t->ctx, &p, t->main));
}

void swiglu_matmul_backward(trainer *t, int layer, arena_slot dy, arena_slot gate_up, arena_slot h)
{
    sb_swiglu_matmul p = shape_of(&t->o);
    p.dy = step_pointer(t, dy);
    p.w2 = step_param(t, PARAM_W2, layer);
    p.gate_up = step_pointer(t, gate_up);
    p.h = step_pointer(t, h);
    if (step_go(t))
        step_done(t, t->k->train->swiglu_matmul_backward(t->ctx, &p, t->main));
}
