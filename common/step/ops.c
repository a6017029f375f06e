/* SPDX-License-Identifier: MIT */
/* Norms, SwiGLU, RoPE, attention and the loss: each takes what it needs from the arena, and launches unless the arena only
 * plans. */
#include "common/step/ops.h"

#include "common/record/nvtx.h"
#include "common/step/exchange.h"
#include "common/step/tensors.h"

arena_slot take_rows(step *s, int columns, memory_kind kind, int layer, const char *name)
{
    return step_take(s, step_rows(s, columns), kind, layer, name);
}

arena_slot take_stream(step *s, memory_kind kind, int layer, const char *name)
{
    return step_take(s, step_stream(s), kind, layer, name);
}

arena_slot take_rstd(step *s, int layer)
{
    return step_take(s, (size_t)s->rows * sizeof(float), MEMORY_ACTIVATION, layer, "rstd");
}

/* ---- norms, SwiGLU, RoPE ---- */

static sb_rmsnorm norm_of(const step *s, param_kind kind, int layer, arena_slot x, arena_slot rstd)
{
    return (sb_rmsnorm){.dtype = s->dtype,
                        .dtype_param = s->param_dtype,
                        .dtype_grad = s->made_dtype,
                        .rows = s->rows,
                        .d = s->d,
                        .eps = s->o.config.norm_eps,
                        .x = step_pointer(s, x),
                        .weight = step_param(s, kind, layer),
                        .rstd = step_pointer(s, rstd)};
}

void norm_forward(step *s, param_kind kind, int layer, arena_slot x, arena_slot y, arena_slot rstd)
{
    if (s->eager) {
        eager_norm_forward(s, kind, layer, x, y, rstd);
        return;
    }
    sb_rmsnorm p = norm_of(s, kind, layer, x, rstd);
    p.y = step_pointer(s, y);
    if (step_go(s))
        step_done(s, s->k->train->rmsnorm_forward(s->ctx, &p, s->main));
}

void norm_backward(step *s, param_kind kind, int layer, arena_slot x, arena_slot rstd, arena_slot dy,
                   arena_slot d_residual, arena_slot dx)
{
    void *dweight = step_grad(s, kind, layer, s->d);
    if (s->eager) {
        eager_norm_backward(s, kind, layer, x, rstd, dy, d_residual, dx, dweight);
    } else {
        sb_rmsnorm p = norm_of(s, kind, layer, x, rstd);
        p.workspace_bytes = s->k->train->rmsnorm_workspace(s->ctx, &p);
        arena_slot workspace = step_take(s, p.workspace_bytes, MEMORY_WORKSPACE, layer, "rmsnorm");
        p.workspace = step_pointer(s, workspace);
        p.dy = step_pointer(s, dy), p.d_residual = step_pointer(s, d_residual), p.dx = step_pointer(s, dx);
        p.dweight = dweight, p.accumulate = s->adds;
        if (step_go(s))
            step_done(s, s->k->train->rmsnorm_backward(s->ctx, &p, s->main));
        step_drop(s, &workspace);
    }
    step_ready(s, kind, layer, s->d, s->main);
}

void swiglu_forward(step *s, int layer, arena_slot gate_up, arena_slot h)
{
    if (s->eager) {
        eager_swiglu_forward(s, layer, gate_up, h);
        return;
    }
    sb_swiglu p = {
        .dtype = s->dtype, .rows = s->tokens, .f = s->f, .gate_up = step_pointer(s, gate_up), .h = step_pointer(s, h)};
    if (step_go(s))
        step_done(s, s->k->train->swiglu_forward(s->ctx, &p, s->main));
}

void swiglu_backward(step *s, int layer, arena_slot gate_up, arena_slot dh, arena_slot h)
{
    if (s->eager) {
        eager_swiglu_backward(s, layer, gate_up, dh, h);
        return;
    }
    sb_swiglu p = {.dtype = s->dtype,
                   .rows = s->tokens,
                   .f = s->f,
                   .gate_up = step_pointer(s, gate_up),
                   .h = step_pointer(s, h),
                   .dh = step_pointer(s, dh),
                   .d_gate_up = step_pointer(s, gate_up)};
    if (step_go(s))
        step_done(s, s->k->train->swiglu_backward(s->ctx, &p, s->main));
}

/* SwiGLU within the matrix product ahead of it, where the backend can: forward with gate's and up's, backward with the one
 * that makes its gradient. */
static sb_swiglu_matmul swiglu_matmul_shape(const step_options *o)
{
    const model_config *c = &o->config;
    return (sb_swiglu_matmul){.dtype = o->precision->compute,
                              .rows = o->batch * o->seq / (o->windows ? step_split(o).ranks : 1),
                              .f = layer_shape_of(c, step_split(o)).d_ff,
                              .d = c->d_model,
                              .lda = c->d_model};
}

bool step_fuses_swiglu(const step_options *o, const sb_kernels *k, sb_context *ctx)
{
    const sb_swiglu_matmul p = swiglu_matmul_shape(o);
    return o->fusion != FUSION_NONE && !o->swiglu_apart && !o->precision->float8 &&
           o->precision->activations == p.dtype && k->train->swiglu_matmul_supported(ctx, &p) == SB_OK;
}

static void place_swiglu(const step *s, sb_swiglu_matmul *p, const share_piece *rows, arena_slot gate_up, arena_slot h)
{
    p->rows = rows->count;
    p->gate_up = step_at(step_pointer(s, gate_up), (int64_t)rows->at * 2 * s->f * s->element);
    p->h = step_at(step_pointer(s, h), (int64_t)rows->at * s->f * s->element);
}

void swiglu_matmul_forward(step *s, int layer, arena_slot x, arena_slot gate_up, arena_slot h)
{
    sb_swiglu_matmul p = swiglu_matmul_shape(&s->o);
    arena_slot all = share_input(s, layer, x, false);
    p.w13 = step_param(s, PARAM_W1, layer);
    for (int i = 0; i < share_pieces(s, all, false); i++) {
        const share_piece rows = share_begin(s, all, i, false);
        p.x = step_at(step_pointer(s, rows.rows), (int64_t)rows.from * s->d * s->element);
        place_swiglu(s, &p, &rows, gate_up, h);
        if (step_go(s))
            step_done(s, s->k->train->swiglu_matmul_forward(s->ctx, &p, s->main));
    }
    share_drop(s, x, &all);
}

void swiglu_matmul_backward(step *s, int layer, arena_slot dy, arena_slot gate_up, arena_slot h)
{
    sb_swiglu_matmul p = swiglu_matmul_shape(&s->o);
    p.w2 = step_param(s, PARAM_W2, layer);
    for (int i = 0; i < share_pieces(s, dy, false); i++) {
        const share_piece rows = share_begin(s, dy, i, false);
        p.dy = step_at(step_pointer(s, rows.rows), (int64_t)rows.from * s->d * s->element);
        place_swiglu(s, &p, &rows, gate_up, h);
        if (step_go(s))
            step_done(s, s->k->train->swiglu_matmul_backward(s->ctx, &p, s->main));
    }
}

void rope(step *s, int layer, arena_slot qkv, bool inverse)
{
    (void)layer;
    /* q and k heads lie side by side in a token's row: one call turns both, or one each in an eager step. */
    const int heads[2] = {s->eager ? s->heads : s->heads + s->heads_kv, s->heads_kv};
    for (int part = 0, head = 0; part < (s->eager ? 2 : 1); head += heads[part++]) {
        const int64_t token = s->qkv;
        sb_rope p = {.dtype = s->dtype,
                     .batch = s->o.batch,
                     .seq = s->o.seq,
                     .heads = heads[part],
                     .head_dim = s->head_dim,
                     .x = {step_at(step_pointer(s, qkv), (int64_t)head * s->head_dim * s->element), s->o.seq * token,
                           s->head_dim, token},
                     .table = s->rope_table,
                     .inverse = inverse};
        if (step_go(s))
            step_done(s, s->k->train->rope(s->ctx, &p, s->main));
    }
}

/* ---- attention ---- */

sb_attention step_attention(const step_options *o)
{
    const layer_shape shape = layer_shape_of(&o->config, step_split(o));
    return (sb_attention){.batch = o->batch,
                          .heads = shape.heads,
                          .heads_kv = shape.heads_kv,
                          .seq_q = o->seq,
                          .seq_k = o->seq,
                          .head_dim = model_head_dim(&o->config),
                          .dtype = o->precision->compute,
                          .causal = true,
                          .deterministic = o->deterministic};
}

/* A view of `heads` heads that start `column` elements into each token's row of `width`. */
static sb_tensor view(const step *s, arena_slot slot, int64_t column, int64_t width)
{
    return (sb_tensor){step_at(step_pointer(s, slot), column * s->element), s->o.seq * width, s->head_dim, width};
}

static sb_attention attention_of(const step *s, const block_slots *b)
{
    sb_attention a = step_attention(&s->o);
    a.q = view(s, b->qkv, 0, s->qkv);
    a.k = view(s, b->qkv, s->width, s->qkv);
    a.v = view(s, b->qkv, s->width + s->kv, s->qkv);
    a.o = view(s, b->att, 0, s->width);
    a.lse = step_pointer(s, b->lse);
    a.saved = step_pointer(s, b->saved);
    return a;
}

void attention_forward(step *s, int layer, block_slots *b)
{
    const sb_attention shape = step_attention(&s->o);
    b->att = step_take(s, step_rows(s, s->width), MEMORY_ACTIVATION, layer, "attention_out");
    b->lse = step_take(s, (size_t)s->tokens * (size_t)s->heads * sizeof(float), MEMORY_ACTIVATION, layer, "lse");
    b->saved = step_take(s, s->attention->saved_bytes(s->ctx, &shape), MEMORY_ACTIVATION, layer, "probabilities");
    const size_t bytes = s->attention->forward_workspace(s->ctx, &shape);
    arena_slot workspace = step_take(s, bytes, MEMORY_WORKSPACE, layer, "attention");
    sb_attention a = attention_of(s, b);
    a.workspace = step_pointer(s, workspace), a.workspace_bytes = bytes;
    if (step_go(s))
        step_done(s, s->attention->forward(s->ctx, &a, s->main));
    step_drop(s, &workspace);
}

void attention_backward(step *s, int layer, block_slots *b, arena_slot d_att, arena_slot d_qkv)
{
    const sb_attention shape = step_attention(&s->o);
    const size_t bytes = s->attention->backward_workspace(s->ctx, &shape);
    arena_slot workspace = step_take(s, bytes, MEMORY_WORKSPACE, layer, "attention");
    sb_attention a = attention_of(s, b);
    a.workspace = step_pointer(s, workspace), a.workspace_bytes = bytes;
    a.d_o = view(s, d_att, 0, s->width);
    a.dq = view(s, d_qkv, 0, s->qkv);
    a.dk = view(s, d_qkv, s->width, s->qkv);
    a.dv = view(s, d_qkv, s->width + s->kv, s->qkv);
    if (step_go(s))
        step_done(s, s->attention->backward(s->ctx, &a, s->main));
    step_drop(s, &workspace);
}

/* ---- the loss ---- */

void cross_entropy(step *s, int first, int rows, arena_slot logits, bool backward)
{
    if (share_on(s)) {
        share_loss(s, first, rows, logits, backward);
        return;
    }
    const sb_cross_entropy p = {.dtype = s->dtype,
                                .rows = rows,
                                .total_rows = (int64_t)s->tokens * s->micro_batches * (s->o.ranks > 1 ? s->o.ranks : 1),
                                .vocab = s->vocab,
                                .logits = step_pointer(s, logits),
                                .targets = s->targets + (int64_t)s->micro->number * s->tokens + first,
                                .row_loss = s->row_loss + first,
                                .loss = s->loss + s->micro->number,
                                .scale = s->state && s->o.precision->loss_scaling ? &s->state->loss_scale : NULL,
                                .backward = backward};
    if (step_go(s)) {
        range_push("loss");
        step_done(s, s->k->train->cross_entropy(s->ctx, &p, s->main));
        range_pop();
    }
}

void mean_loss(step *s)
{
    sb_reduce p = {.dtype = SB_FP32,
                   .dtype_out = SB_FP32,
                   .rows = 1,
                   .columns = s->tokens,
                   .ld = s->tokens,
                   .scale = 1.0f / (float)s->tokens,
                   .x = s->row_loss,
                   .out = s->loss + s->micro->number};
    p.workspace_bytes = s->k->train->reduce_workspace(s->ctx, &p);
    arena_slot workspace = step_take(s, p.workspace_bytes, MEMORY_WORKSPACE, -1, "loss");
    p.workspace = step_pointer(s, workspace);
    if (step_go(s))
        step_done(s, s->k->train->reduce(s->ctx, &p, s->main));
    step_drop(s, &workspace);
}
