/* SPDX-License-Identifier: MIT */
/* Norms, SwiGLU, RoPE, attention and the loss: each takes what it needs from the arena, and launches unless the arena only
 * plans. */
#include "common/step/ops.h"

#include <stdio.h>

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

void norm_make(step *s, param_kind kind, int layer, arena_slot x, arena_slot y, arena_slot rstd)
{
    sb_rmsnorm p = norm_of(s, kind, layer, x, rstd);
    p.y = step_pointer(s, y);
    if (step_go(s))
        step_done(s, s->k->train->rmsnorm_forward(s->ctx, &p, s->main));
}

arena_slot norm_forward(step *s, param_kind kind, int layer, memory_kind held, const char *name, arena_slot x,
                        arena_slot rstd)
{
    arena_slot y = take_stream(s, held, layer, name);
    (s->eager ? eager_norm_forward : norm_make)(s, kind, layer, x, y, rstd);
    share_norm(s, layer, &y);
    return y;
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
    share_drop(s, x, &all, false);
}

void swiglu_matmul_backward(step *s, int layer, arena_slot dy, arena_slot gate_up, arena_slot h)
{
    sb_swiglu_matmul p = swiglu_matmul_shape(&s->o);
    p.w2 = step_param(s, PARAM_W2, layer);
    const share_piece rows = {.count = s->tokens};
    share_whole(s, dy, s->main);
    p.dy = step_pointer(s, dy);
    place_swiglu(s, &p, &rows, gate_up, h);
    if (step_go(s))
        step_done(s, s->k->train->swiglu_matmul_backward(s->ctx, &p, s->main));
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

/* ---- attention: one call of an op, or where ranks share sequences a pass of a context, which makes several ---- */

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

static context_setup setup_of(const step_options *o, device *d, const sb_kernels *k, sb_context *ctx)
{
    const context_shape shape = step_context_shape(o);
    context_setup x = {.d = d,
                       .kernels = k,
                       .ctx = ctx,
                       .op = sb_attention_find(k, o->attention),
                       .whole = step_attention(o),
                       .shape = shape,
                       .way = o->context.way,
                       .rank = o->context.rank,
                       .groups = o->context.groups,
                       .fault = o->context.fault == CONTEXT_POSITION ? CONTEXT_NONE : o->context.fault};
    x.whole.seq_q = x.whole.seq_k = (int)shape.seq;
    return x;
}

context *step_context_create(const step_options *o, device *d, const sb_kernels *k, sb_context *ctx, char *why,
                             size_t why_bytes)
{
    const context_setup x = setup_of(o, d, k, ctx);
    if (context_problem(&x, why, why_bytes))
        return NULL;
    if (x.op->saved_bytes(ctx, &x.whole)) {
        snprintf(why, why_bytes, "ranks that share sequences need attention that keeps no scores: flash");
        return NULL;
    }
    context *c = context_create(&x);
    c->stands_in = true;
    if (c->status == SB_OK)
        return c;
    snprintf(why, why_bytes, "%s", c->why);
    context_free(c);
    return NULL;
}

attention_bytes step_attention_bytes(const step_options *o, const sb_kernels *k, sb_context *ctx)
{
    const sb_attention a = step_attention(o);
    const sb_attention_op *op = sb_attention_find(k, o->attention);
    char why[256];
    if (o->context.ranks < 2)
        return (attention_bytes){op->saved_bytes(ctx, &a), op->forward_workspace(ctx, &a),
                                 op->backward_workspace(ctx, &a)};
    context *c = step_context_create(o, NULL, k, ctx, why, sizeof why);
    const attention_bytes bytes =
        c ? (attention_bytes){context_saved_bytes(c), context_workspace(c, false), context_workspace(c, true)}
          : (attention_bytes){0};
    context_free(c);
    return bytes;
}

/* A view of `heads` heads that start `column` elements into each token's row of `width`. */
static sb_tensor view(const step *s, arena_slot slot, int64_t column, int64_t width)
{
    return (sb_tensor){step_at(step_pointer(s, slot), column * s->element), s->o.seq * width, s->head_dim, width};
}

static context_tensor chunks(const step *s, const sb_tensor *t, int heads_of_group)
{
    return (context_tensor){t->data, t->stride_b, t->stride_s, heads_of_group * t->stride_h,
                            s->o.seq / 2 * t->stride_s};
}

static sb_status attend(step *s, const sb_attention *a, bool backward)
{
    if (!s->context)
        return (backward ? s->attention->backward : s->attention->forward)(s->ctx, a, s->main);
    const int q = s->context->heads, kv = s->context->heads_kv;
    const context_pass p = {.q = chunks(s, &a->q, q),
                            .k = chunks(s, &a->k, kv),
                            .v = chunks(s, &a->v, kv),
                            .o = chunks(s, &a->o, q),
                            .d_o = chunks(s, &a->d_o, q),
                            .dq = chunks(s, &a->dq, q),
                            .dk = chunks(s, &a->dk, kv),
                            .dv = chunks(s, &a->dv, kv),
                            .lse = a->lse,
                            .saved = a->saved,
                            .workspace = a->workspace};
    return context_run(s->context, &p, backward, s->main) ? SB_OK : s->context->status;
}

static void run_attention(step *s, int layer, sb_attention *a, bool backward)
{
    a->workspace_bytes = backward ? s->attention_needs.backward : s->attention_needs.forward;
    arena_slot workspace = step_take(s, a->workspace_bytes, MEMORY_WORKSPACE, layer, "attention");
    a->workspace = step_pointer(s, workspace);
    if (step_go(s))
        step_done(s, attend(s, a, backward));
    step_drop(s, &workspace);
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

void attention_begin(step *s, int layer, block_slots *b)
{
    b->att = step_take(s, step_rows(s, s->width), MEMORY_ACTIVATION, layer, "attention_out");
    b->lse = step_take(s, (size_t)s->tokens * (size_t)s->heads * sizeof(float), MEMORY_ACTIVATION, layer, "lse");
    b->saved = step_take(s, s->attention_needs.saved, MEMORY_ACTIVATION, layer, "probabilities");
}

static void skip(sb_tensor *t, int64_t rows, int element)
{
    t->data = step_at(t->data, rows * t->stride_s * element);
}

void attention_forward(step *s, int layer, int first, int rows)
{
    sb_attention a = attention_of(s, &s->micro->blocks[layer]);
    sb_tensor *const of[] = {&a.q, &a.k, &a.v, &a.o};
    for (int i = 0; i < 4; i++)
        skip(of[i], first, s->element);
    a.lse = a.lse ? a.lse + (size_t)first * (size_t)s->heads : NULL;
    a.batch = (int)((int64_t)a.batch * rows / s->tokens);
    run_attention(s, layer, &a, false);
}

void attention_backward(step *s, int layer, block_slots *b, arena_slot d_att, arena_slot d_qkv)
{
    sb_attention a = attention_of(s, b);
    a.d_o = view(s, d_att, 0, s->width);
    a.dq = view(s, d_qkv, 0, s->qkv);
    a.dk = view(s, d_qkv, s->width, s->qkv);
    a.dv = view(s, d_qkv, s->width + s->kv, s->qkv);
    run_attention(s, layer, &a, true);
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
