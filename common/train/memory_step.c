/* SPDX-License-Identifier: MIT */
/* Options to shapes, and what each op says that it needs; see memory_step.h. */
#include "common/train/memory_step.h"

#include "common/model/params.h"
#include "common/step/ops.h"

/* A linear layer as its products see it: the width of its input and of its outputs, which an eager step multiplies part
 * by part. */
typedef struct layer {
    int in, parts, out[3];
} layer;

static layer layer_of(const model_config *c, memory_product which)
{
    const int d = c->d_model, kv = model_kv_dim(c);
    switch (which) {
    case PRODUCT_QKV: return (layer){d, 3, {d, kv, kv}};
    case PRODUCT_O: return (layer){d, 1, {d}};
    case PRODUCT_GATE_UP: return (layer){d, 2, {c->d_ff, c->d_ff}};
    case PRODUCT_W2: return (layer){c->d_ff, 1, {d}};
    default: return (layer){d, 1, {c->vocab}};
    }
}

static sb_dtype grad_dtype(const step_options *o)
{
    return step_sums_in_products(o) ? step_sums_dtype(o) : step_made_dtype(o);
}

static int64_t ask(const sb_kernels *k, sb_context *ctx, sb_matmul p)
{
    return (int64_t)k->train->matmul_workspace(ctx, &p);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The three products of a layer: the most that any part of each wants. */
static void ask_products(const step_options *o, const sb_kernels *k, sb_context *ctx, memory_product which, int rows,
                         bool added, memory_scratch *s)
{
    const layer l = layer_of(&o->config, which);
    const bool eager = o->fusion == FUSION_NONE, adds = which == PRODUCT_O || which == PRODUCT_W2;
    const int width = l.out[0] + l.out[1] + l.out[2];
    static const _Alignas(16) char something; /* where an operand is given; its address is not looked at */
    for (int i = 0; i < (eager ? l.parts : 1); i++) {
        const int out = eager ? l.out[i] : width;
        sb_matmul p = {.dtype = o->precision->compute,
                       .dtype_out = o->precision->activations,
                       .split = o->precision->compute == SB_FP32 ? o->split : SB_FMA};
        sb_matmul y = p, dx = p, dw = p;
        y.transpose_b = true, y.m = rows, y.n = out, y.k = l.in;
        y.lda = y.ldb = l.in, y.ldd = width;
        if (adds && !eager)
            y.c = &something, y.ldc = width;
        dx.m = rows, dx.n = l.in, dx.k = out;
        dx.lda = width, dx.ldb = dx.ldd = l.in;
        if (i > 0)
            dx.c = &something, dx.ldc = l.in;
        dw.dtype_out = grad_dtype(o);
        dw.transpose_a = true, dw.m = out, dw.n = l.in, dw.k = rows;
        dw.lda = width, dw.ldb = dw.ldd = l.in;
        if (added)
            dw.c = &something, dw.ldc = l.in;
        s->forward[which] = larger(s->forward[which], ask(k, ctx, y));
        s->dx[which] = larger(s->dx[which], ask(k, ctx, dx));
        s->dw[which] = larger(s->dw[which], ask(k, ctx, dw));
    }
}

static void ask_attention(const step_options *o, const sb_kernels *k, sb_context *ctx, memory_scratch *s)
{
    const attention_bytes bytes = step_attention_bytes(o, k, ctx);
    s->attention_saved = (int64_t)bytes.saved;
    s->attention_forward = (int64_t)bytes.forward;
    s->attention_backward = (int64_t)bytes.backward;
}

static void ask_rows(const step_options *o, const sb_kernels *k, sb_context *ctx, memory_scratch *s)
{
    const model_config *c = &o->config;
    const int rows = o->batch * o->seq, d = c->d_model;
    const sb_rmsnorm norm = {.dtype = o->precision->activations,
                             .dtype_param = o->precision->param,
                             .dtype_grad = grad_dtype(o),
                             .rows = rows,
                             .d = d,
                             .eps = c->norm_eps};
    const sb_embedding embedding = {
        .dtype = o->precision->activations, .dtype_grad = grad_dtype(o), .rows = rows, .vocab = c->vocab, .d = d};
    const sb_reduce along = {.dtype = SB_FP32, .dtype_out = SB_FP32, .rows = rows, .columns = d, .ld = d};
    const sb_reduce down = {
        .dtype = SB_FP32, .dtype_out = grad_dtype(o), .rows = rows, .columns = d, .ld = d, .over_rows = true};
    s->norm_backward = (int64_t)k->train->rmsnorm_workspace(ctx, &norm);
    s->embedding_backward = (int64_t)k->train->embedding_workspace(ctx, &embedding);
    const sb_reduce mean = {.dtype = SB_FP32, .dtype_out = SB_FP32, .rows = 1, .columns = rows, .ld = rows};
    s->mean_loss = (int64_t)k->train->reduce_workspace(ctx, &mean);
    s->row_sums = (int64_t)k->train->reduce_workspace(ctx, &along);
    s->column_sums = (int64_t)k->train->reduce_workspace(ctx, &down);
}

static void ask_update(const step_options *o, const sb_kernels *k, sb_context *ctx, memory_step *m)
{
    if (!m->update || !(o->precision->loss_scaling || o->clip_norm > 0))
        return;
    params *p = params_create(&o->config);
    params_pad(p, o->granularity);
    const sb_grad_stats stats = {.dtype = grad_dtype(o), .n = (size_t)p->elements};
    m->scratch.grad_stats = (int64_t)k->train->grad_stats_workspace(ctx, &stats);
    params_free(p);
}

memory_step memory_step_of(const step_options *o, const sb_kernels *k, sb_context *ctx)
{
    const model_config *c = &o->config;
    const precision *p = o->precision;
    const bool eager = o->fusion == FUSION_NONE;
    memory_step m = {
        .shape = {c->vocab, c->d_model, c->d_ff, c->layers, c->heads, c->heads_kv, o->batch, o->seq},
        .activation_bytes = sb_dtype_bytes(p->activations),
        .param_bytes = sb_dtype_bytes(p->param),
        .master_bytes = precision_master_bytes(p),
        .grad_bytes = sb_dtype_bytes(grad_dtype(o)),
        .moment_bytes = sb_dtype_bytes(moments_dtype(p, o->moments)),
        .alignment = PARAMS_ALIGNMENT,
        .granularity = o->granularity,
        .state_elements = o->state_elements,
        .state_bytes = sizeof(sb_optimizer_state),
        .backward = o->mode != STEP_FORWARD,
        .update = o->mode == STEP_TRAIN,
        .schedule = step_schedule(o),
        .eager = eager,
        .overlap = o->overlap && !eager,
        .swiglu_matmul = step_fuses_swiglu(o, k, ctx),
        .share_grad_memory = o->share_grad_memory,
        .loss_chunk = o->loss_chunk,
    };
    const int tokens = o->batch * o->seq, chunk = o->loss_chunk;
    for (int i = c->heads ? 0 : PRODUCT_GATE_UP; i < PRODUCT_HEAD; i++)
        ask_products(o, k, ctx, (memory_product)i, tokens, false, &m.scratch);
    ask_products(o, k, ctx, PRODUCT_HEAD, chunk && chunk < tokens ? chunk : tokens, false, &m.scratch);
    if (chunk && chunk < tokens) {
        if (tokens >= 2 * chunk)
            ask_products(o, k, ctx, PRODUCT_HEAD, chunk, true, &m.scratch);
        if (tokens % chunk)
            ask_products(o, k, ctx, PRODUCT_HEAD_REST, tokens % chunk, true, &m.scratch);
    }
    if (c->heads)
        ask_attention(o, k, ctx, &m.scratch);
    ask_rows(o, k, ctx, &m.scratch);
    ask_update(o, k, ctx, &m);
    return m;
}
