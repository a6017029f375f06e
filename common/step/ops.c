/* SPDX-License-Identifier: MIT */
/* One op of a walk each: takes what it needs from the arena, and launches unless the arena only plans. */
#include <string.h>

#include "common/step/step.h"

/* ---- bookkeeping ---- */

arena_slot step_take(trainer *t, size_t bytes, memory_kind kind, int layer, const char *name)
{
    return bytes ? arena_take(t->arena, bytes, kind, layer, name) : -1;
}

void step_drop(trainer *t, arena_slot *s)
{
    if (*s >= 0)
        arena_drop(t->arena, *s);
    *s = -1;
}

void *step_pointer(const trainer *t, arena_slot s)
{
    return s < 0 ? NULL : arena_pointer(t->arena, s);
}

bool step_go(trainer *t)
{
    arena_op(t->arena);
    return !arena_planning(t->arena) && t->status == SB_OK;
}

void step_done(trainer *t, sb_status s)
{
    if (t->status == SB_OK)
        t->status = s;
}

size_t step_rows(const trainer *t, int64_t columns)
{
    return (size_t)t->tokens * (size_t)columns * (size_t)t->element;
}

static int64_t first_of(const trainer *t, param_kind kind, int layer)
{
    return params_find(t->params, kind, layer)->first;
}

void *step_param(const trainer *t, param_kind kind, int layer)
{
    return unit_param(t, params_find(t->params, kind, layer));
}

/* Where the tensor behind these `count` elements starts: between them is padding, and behind the last one to the end. */
static int64_t next_of(const trainer *t, param_kind kind, int layer, int64_t end)
{
    const param_tensor *next = params_find(t->params, kind, layer) + 1, *none = t->params->tensors + t->params->count;
    while (next < none && next->first < end)
        next++;
    return next < none ? next->first : t->params->elements;
}

void *step_grad(trainer *t, param_kind kind, int layer, int64_t count)
{
    static const char *const names[PARAM_KINDS] = {
        [PARAM_LM_HEAD] = "d_lm_head", [PARAM_LN_FINAL] = "d_ln_final", [PARAM_W2] = "d_w2",
        [PARAM_W1] = "d_w13",          [PARAM_LN2] = "d_ln2",           [PARAM_O] = "d_o",
        [PARAM_Q] = "d_qkv",           [PARAM_LN1] = "d_ln1",           [PARAM_EMBEDDING] = "d_embedding"};
    const int64_t first = first_of(t, kind, layer), end = first + count, next = next_of(t, kind, layer, end);
    if (t->o.share_grad_memory && !unit_grads_apart(t))
        arena_fixed(t->arena, (size_t)(first * t->made_element), (size_t)((next - first) * t->made_element),
                    MEMORY_GRAD, layer, names[kind]);
    if (arena_planning(t->arena))
        return NULL;
    const int unit = params_unit_of(t->params, params_find(t->params, kind, layer));
    /* An activation may have lain here, and padding must be zero. */
    if (next > end)
        device_memset(t->dev, unit_grad(t, unit, end), 0, (size_t)((next - end) * t->made_element));
    return unit_grad(t, unit, first);
}

void step_ready(trainer *t, param_kind kind, int layer, int64_t count, void *stream)
{
    if (unit_grads_apart(t) && !t->o.shard.grads)
        return; /* not before they are added up: unit_grads_end */
    if (t->params->gains_apart && param_is_gain(kind))
        return; /* all at once, when those of the last norm are there: units_end */
    if (t->hooks.ready && !arena_planning(t->arena) && t->status == SB_OK)
        t->hooks.ready(t->hooks.user, first_of(t, kind, layer), count, stream);
}

void step_need(trainer *t, int layer)
{
    int64_t first, count;
    if (!t->hooks.need || arena_planning(t->arena) || t->status != SB_OK)
        return;
    params_range(t->params, layer, &first, &count);
    t->hooks.need(t->hooks.user, first, count, t->main);
}

/* ---- norms, SwiGLU, RoPE ---- */

static sb_rmsnorm norm_of(const trainer *t, param_kind kind, int layer, arena_slot x, arena_slot rstd)
{
    return (sb_rmsnorm){.dtype = t->dtype,
                        .dtype_param = t->param_dtype,
                        .dtype_grad = t->made_dtype,
                        .rows = t->tokens,
                        .d = t->d,
                        .eps = t->o.config.norm_eps,
                        .x = step_pointer(t, x),
                        .weight = step_param(t, kind, layer),
                        .rstd = step_pointer(t, rstd)};
}

void norm_forward(trainer *t, param_kind kind, int layer, arena_slot x, arena_slot y, arena_slot rstd)
{
    if (t->eager) {
        eager_norm_forward(t, kind, layer, x, y, rstd);
        return;
    }
    sb_rmsnorm p = norm_of(t, kind, layer, x, rstd);
    p.y = step_pointer(t, y);
    if (step_go(t))
        step_done(t, t->k->train->rmsnorm_forward(t->ctx, &p, t->main));
}

void norm_backward(trainer *t, param_kind kind, int layer, arena_slot x, arena_slot rstd, arena_slot dy,
                   arena_slot d_residual, arena_slot dx)
{
    void *dweight = step_grad(t, kind, layer, t->d);
    if (t->eager) {
        eager_norm_backward(t, kind, layer, x, rstd, dy, d_residual, dx, dweight);
    } else {
        sb_rmsnorm p = norm_of(t, kind, layer, x, rstd);
        p.workspace_bytes = t->k->train->rmsnorm_workspace(t->ctx, &p);
        arena_slot workspace = step_take(t, p.workspace_bytes, MEMORY_WORKSPACE, layer, "rmsnorm");
        p.workspace = step_pointer(t, workspace);
        p.dy = step_pointer(t, dy), p.d_residual = step_pointer(t, d_residual), p.dx = step_pointer(t, dx);
        p.dweight = dweight;
        if (step_go(t))
            step_done(t, t->k->train->rmsnorm_backward(t->ctx, &p, t->main));
        step_drop(t, &workspace);
    }
    step_ready(t, kind, layer, t->d, t->main);
}

void swiglu_forward(trainer *t, int layer, arena_slot gate_up, arena_slot h)
{
    if (t->eager) {
        eager_swiglu_forward(t, layer, gate_up, h);
        return;
    }
    sb_swiglu p = {
        .dtype = t->dtype, .rows = t->tokens, .f = t->f, .gate_up = step_pointer(t, gate_up), .h = step_pointer(t, h)};
    if (step_go(t))
        step_done(t, t->k->train->swiglu_forward(t->ctx, &p, t->main));
}

void swiglu_backward(trainer *t, int layer, arena_slot gate_up, arena_slot dh, arena_slot h)
{
    if (t->eager) {
        eager_swiglu_backward(t, layer, gate_up, dh, h);
        return;
    }
    sb_swiglu p = {.dtype = t->dtype,
                   .rows = t->tokens,
                   .f = t->f,
                   .gate_up = step_pointer(t, gate_up),
                   .h = step_pointer(t, h),
                   .dh = step_pointer(t, dh),
                   .d_gate_up = step_pointer(t, gate_up)};
    if (step_go(t))
        step_done(t, t->k->train->swiglu_backward(t->ctx, &p, t->main));
}

/* SwiGLU within the matrix product ahead of it, where the backend can: forward with gate's and up's, backward with the one
 * that makes its gradient. */
static sb_swiglu_matmul swiglu_matmul_shape(const step_options *o)
{
    const model_config *c = &o->config;
    return (sb_swiglu_matmul){
        .dtype = o->precision->compute, .rows = o->batch * o->seq, .f = c->d_ff, .d = c->d_model, .lda = c->d_model};
}

bool step_fuses_swiglu(const step_options *o, const sb_kernels *k, sb_context *ctx)
{
    const sb_swiglu_matmul p = swiglu_matmul_shape(o);
    return o->fusion != FUSION_NONE && !o->swiglu_apart && o->precision->activations == p.dtype &&
           k->train->swiglu_matmul_supported(ctx, &p) == SB_OK;
}

void swiglu_matmul_forward(trainer *t, int layer, arena_slot x, arena_slot gate_up, arena_slot h)
{
    sb_swiglu_matmul p = swiglu_matmul_shape(&t->o);
    p.x = step_pointer(t, x);
    p.w13 = step_param(t, PARAM_W1, layer);
    p.gate_up = step_pointer(t, gate_up);
    p.h = step_pointer(t, h);
    if (step_go(t))
        step_done(t, t->k->train->swiglu_matmul_forward(t->ctx, &p, t->main));
}

void swiglu_matmul_backward(trainer *t, int layer, arena_slot dy, arena_slot gate_up, arena_slot h)
{
    sb_swiglu_matmul p = swiglu_matmul_shape(&t->o);
    p.dy = step_pointer(t, dy);
    p.w2 = step_param(t, PARAM_W2, layer);
    p.gate_up = step_pointer(t, gate_up);
    p.h = step_pointer(t, h);
    if (step_go(t))
        step_done(t, t->k->train->swiglu_matmul_backward(t->ctx, &p, t->main));
}

void rope(trainer *t, int layer, arena_slot qkv, bool inverse)
{
    (void)layer;
    /* q and k heads lie side by side in a token's row: one call turns both, or one each in an eager step. */
    const int heads[2] = {t->eager ? t->heads : t->heads + t->heads_kv, t->heads_kv};
    for (int part = 0, head = 0; part < (t->eager ? 2 : 1); head += heads[part++]) {
        const int64_t token = t->qkv;
        sb_rope p = {.dtype = t->dtype,
                     .batch = t->o.batch,
                     .seq = t->o.seq,
                     .heads = heads[part],
                     .head_dim = t->head_dim,
                     .x = {step_at(step_pointer(t, qkv), (int64_t)head * t->head_dim * t->element), t->o.seq * token,
                           t->head_dim, token},
                     .table = t->rope_table,
                     .inverse = inverse};
        if (step_go(t))
            step_done(t, t->k->train->rope(t->ctx, &p, t->main));
    }
}

/* ---- attention ---- */

sb_attention step_attention(const trainer *t)
{
    return (sb_attention){.batch = t->o.batch,
                          .heads = t->heads,
                          .heads_kv = t->heads_kv,
                          .seq_q = t->o.seq,
                          .seq_k = t->o.seq,
                          .head_dim = t->head_dim,
                          .dtype = t->o.precision->compute,
                          .causal = true,
                          .deterministic = t->o.deterministic};
}

/* A view of `heads` heads that start `column` elements into each token's row of `width`. */
static sb_tensor view(const trainer *t, arena_slot s, int64_t column, int64_t width)
{
    return (sb_tensor){step_at(step_pointer(t, s), column * t->element), t->o.seq * width, t->head_dim, width};
}

static sb_attention attention_of(const trainer *t, const block_slots *b)
{
    sb_attention a = step_attention(t);
    a.q = view(t, b->qkv, 0, t->qkv);
    a.k = view(t, b->qkv, t->d, t->qkv);
    a.v = view(t, b->qkv, t->d + t->kv, t->qkv);
    a.o = view(t, b->att, 0, t->d);
    a.lse = step_pointer(t, b->lse);
    a.saved = step_pointer(t, b->saved);
    return a;
}

void attention_forward(trainer *t, int layer, block_slots *b)
{
    const sb_attention shape = step_attention(t);
    b->att = step_take(t, step_rows(t, t->d), MEMORY_ACTIVATION, layer, "attention_out");
    b->lse = step_take(t, (size_t)t->tokens * (size_t)t->heads * sizeof(float), MEMORY_ACTIVATION, layer, "lse");
    b->saved = step_take(t, t->attention->saved_bytes(t->ctx, &shape), MEMORY_ACTIVATION, layer, "probabilities");
    const size_t bytes = t->attention->forward_workspace(t->ctx, &shape);
    arena_slot workspace = step_take(t, bytes, MEMORY_WORKSPACE, layer, "attention");
    sb_attention a = attention_of(t, b);
    a.workspace = step_pointer(t, workspace), a.workspace_bytes = bytes;
    if (step_go(t))
        step_done(t, t->attention->forward(t->ctx, &a, t->main));
    step_drop(t, &workspace);
}

void attention_backward(trainer *t, int layer, block_slots *b, arena_slot d_att, arena_slot d_qkv)
{
    const sb_attention shape = step_attention(t);
    const size_t bytes = t->attention->backward_workspace(t->ctx, &shape);
    arena_slot workspace = step_take(t, bytes, MEMORY_WORKSPACE, layer, "attention");
    sb_attention a = attention_of(t, b);
    a.workspace = step_pointer(t, workspace), a.workspace_bytes = bytes;
    a.d_o = view(t, d_att, 0, t->d);
    a.dq = view(t, d_qkv, 0, t->qkv);
    a.dk = view(t, d_qkv, t->d, t->qkv);
    a.dv = view(t, d_qkv, t->d + t->kv, t->qkv);
    if (step_go(t))
        step_done(t, t->attention->backward(t->ctx, &a, t->main));
    step_drop(t, &workspace);
}
