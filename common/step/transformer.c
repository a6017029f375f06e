/* SPDX-License-Identifier: MIT */
/* Forward, loss and backward of the transformer, as one reads them in the paper; what is kept and what is computed
 * again is decided here, how an op is launched in step_ops.c.
 *
 *   x = E[ids];  for each block: x_mid = x + Wo attention(rope(Wqkv norm1(x)));  x = x_mid + W2 swiglu(W13 norm2(x_mid));
 *   logits = Whead norm(x). */
#include "common/profile/nvtx.h"
#include "common/step/step.h"

/* What the forward of a block leaves behind. */
typedef struct keep {
    bool norms, product; /* n1, n2; h */
    bool attention, mlp; /* what the attention half and the feed-forward half made */
    bool input;          /* x */
    bool output;         /* whether the block's output is wanted at all */
} keep;

static const keep keep_all = {true, true, true, true, true, true};

static keep keep_of(const trainer *t, int layer)
{
    keep k = keep_all;
    if (t->o.mode == STEP_FORWARD)
        return (keep){.output = true};
    switch ((recompute)t->schedule.what[layer]) {
    case RECOMPUTE_NONE: break;
    case RECOMPUTE_SELECTIVE: k.norms = k.product = false; break;
    case RECOMPUTE_ATTN: k.attention = false; break;
    case RECOMPUTE_MLP: k.mlp = false; break;
    case RECOMPUTE_BLOCK:
    case RECOMPUTE_NESTED: k = (keep){.input = t->schedule.input[layer], .output = true}; break;
    case RECOMPUTE_KINDS: break;
    }
    return k;
}

static arena_slot take_rows(trainer *t, int columns, memory_kind kind, int layer, const char *name)
{
    return step_take(t, step_rows(t, columns), kind, layer, name);
}

static arena_slot take_rstd(trainer *t, int layer)
{
    return step_take(t, (size_t)t->tokens * sizeof(float), MEMORY_ACTIVATION, layer, "rstd");
}

/* ---- forward of a block ---- */

static void attention_half(trainer *t, int layer, block_slots *b)
{
    b->rstd1 = take_rstd(t, layer);
    b->n1 = take_rows(t, t->d, MEMORY_ACTIVATION, layer, "norm1");
    norm_forward(t, PARAM_LN1, layer, b->x, b->n1, b->rstd1);
    b->qkv = take_rows(t, t->qkv, MEMORY_ACTIVATION, layer, "qkv");
    linear_forward(t, LINEAR_QKV, layer, b->n1, -1, b->qkv);
    rope(t, layer, b->qkv, false);
    attention_forward(t, layer, b);
}

static void drop_attention_half(trainer *t, block_slots *b)
{
    arena_slot *const slots[] = {&b->rstd1, &b->n1, &b->qkv, &b->lse, &b->saved, &b->att};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        step_drop(t, slots[i]);
}

/* `keep`: backward wants what is made here. */
static void mlp_half(trainer *t, int layer, block_slots *b, bool keep)
{
    b->rstd2 = take_rstd(t, layer);
    b->n2 = take_rows(t, t->d, MEMORY_ACTIVATION, layer, "norm2");
    norm_forward(t, PARAM_LN2, layer, b->x_mid, b->n2, b->rstd2);
    if (keep || !t->swiglu_matmul)
        b->gate_up = take_rows(t, 2 * t->f, MEMORY_ACTIVATION, layer, "gate_up");
    if (!t->swiglu_matmul)
        linear_forward(t, LINEAR_GATE_UP, layer, b->n2, -1, b->gate_up);
    b->h = take_rows(t, t->f, MEMORY_ACTIVATION, layer, "swiglu");
    if (t->swiglu_matmul)
        swiglu_matmul_forward(t, layer, b->n2, b->gate_up, b->h);
    else
        swiglu_forward(t, layer, b->gate_up, b->h);
}

static void drop_mlp_half(trainer *t, block_slots *b)
{
    arena_slot *const slots[] = {&b->rstd2, &b->n2, &b->gate_up, &b->h};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        step_drop(t, slots[i]);
}

/* From b->x to t->x (-1 where the output is not wanted). */
static void block_forward(trainer *t, int layer, block_slots *b, keep k)
{
    range_push("block forward");
    attention_half(t, layer, b);
    if (!k.norms)
        step_drop(t, &b->n1);
    b->x_mid = take_rows(t, t->d, MEMORY_ACTIVATION, layer, "residual_mid");
    linear_forward(t, LINEAR_O, layer, b->att, b->x, b->x_mid);
    if (!k.attention)
        drop_attention_half(t, b);
    if (!k.input)
        step_drop(t, &b->x);
    mlp_half(t, layer, b, k.mlp);
    if (!k.norms)
        step_drop(t, &b->n2);
    t->x = -1;
    if (k.output) {
        t->x = take_rows(t, t->d, MEMORY_ACTIVATION, layer + 1, "residual");
        linear_forward(t, LINEAR_W2, layer, b->h, b->x_mid, t->x);
    }
    if (!k.product)
        step_drop(t, &b->h);
    if (!k.mlp) {
        drop_mlp_half(t, b);
        if (!k.attention)
            step_drop(t, &b->x_mid);
    }
    range_pop();
}

static const block_slots nothing = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};

static sb_embedding embedding_of(const trainer *t)
{
    return (sb_embedding){.dtype = t->dtype,
                          .dtype_grad = t->made_dtype,
                          .rows = t->tokens,
                          .vocab = t->vocab,
                          .d = t->d,
                          .ids = t->ids + (int64_t)t->micro * t->tokens};
}

void transformer_forward(trainer *t, arena_slot *logits)
{
    const int layers = t->o.config.layers;
    block_slots *head = &t->blocks[layers];
    arena_phase(t->arena, PHASE_FORWARD);
    units_begin(t);
    offload_begin(t);
    if (!t->o.share_grad_memory && !unit_grads_apart(t) && t->o.mode != STEP_FORWARD)
        arena_fixed(t->arena, 0, (size_t)(t->params->elements * t->made_element), MEMORY_GRAD, -1, "gradients");
    range_push("forward");
    t->x = take_rows(t, t->d, MEMORY_ACTIVATION, 0, "residual");
    sb_embedding e = embedding_of(t);
    e.out = step_pointer(t, t->x);
    step_need(t, layers);
    unit_acquire(t, layers);
    e.table = step_param(t, PARAM_EMBEDDING, -1);
    if (step_go(t))
        step_done(t, t->k->train->embedding_forward(t->ctx, &e, t->main));
    unit_release(t);
    for (int l = 0; l < layers; l++) {
        t->blocks[l] = nothing;
        t->blocks[l].x = t->x;
        step_need(t, l);
        unit_acquire(t, l);
        block_forward(t, l, &t->blocks[l], keep_of(t, l));
        unit_release(t);
        offload_send(t, l);
    }
    offload_forward_end(t);
    *head = nothing;
    head->x = t->x;
    step_need(t, -1);
    unit_acquire(t, -1);
    head->rstd1 = take_rstd(t, -1);
    head->n1 = take_rows(t, t->d, MEMORY_ACTIVATION, -1, "norm_final");
    norm_forward(t, PARAM_LN_FINAL, -1, head->x, head->n1, head->rstd1);
    *logits = -1;
    if (!t->o.loss_chunk) {
        *logits = take_rows(t, t->vocab, MEMORY_ACTIVATION, -1, "logits");
        linear_forward(t, LINEAR_HEAD, -1, head->n1, -1, *logits);
    }
    unit_release(t);
    if (t->o.mode == STEP_FORWARD) {
        step_drop(t, &head->n1);
        step_drop(t, &head->rstd1);
        step_drop(t, &head->x);
    }
    range_pop();
}

void cross_entropy(trainer *t, int first, int rows, arena_slot logits, bool backward)
{
    const sb_cross_entropy p = {.dtype = t->dtype,
                                .rows = rows,
                                .total_rows = (int64_t)t->tokens * t->micro_batches * (t->o.ranks > 1 ? t->o.ranks : 1),
                                .vocab = t->vocab,
                                .logits = step_pointer(t, logits),
                                .targets = t->targets + (int64_t)t->micro * t->tokens + first,
                                .row_loss = t->row_loss + first,
                                .loss = t->loss + t->micro,
                                .scale = t->state && t->o.precision->loss_scaling ? &t->state->loss_scale : NULL,
                                .backward = backward};
    if (step_go(t)) {
        range_push("loss");
        step_done(t, t->k->train->cross_entropy(t->ctx, &p, t->main));
        range_pop();
    }
}

void transformer_loss(trainer *t, arena_slot logits, bool backward)
{
    if (!t->o.loss_chunk) /* else head_backward has it */
        cross_entropy(t, 0, t->tokens, logits, backward);
}

/* ---- backward ---- */

/* The block's activations that its forward did not leave. */
static void block_recompute(trainer *t, int layer, block_slots *b, keep k)
{
    if (!k.mlp) {
        mlp_half(t, layer, b, true);
    } else {
        if (!k.norms) {
            b->n2 = take_rows(t, t->d, MEMORY_TEMPORARY, layer, "norm2");
            norm_forward(t, PARAM_LN2, layer, b->x_mid, b->n2, b->rstd2);
        }
        if (!k.product)
            b->h = take_rows(t, t->f, MEMORY_TEMPORARY, layer, "swiglu");
    }
}

/* gate_up becomes its gradient, and h is made again where it was not kept. */
static void product_backward(trainer *t, int layer, block_slots *b, bool kept, arena_slot dy)
{
    if (t->swiglu_matmul) {
        swiglu_matmul_backward(t, layer, dy, b->gate_up, kept ? -1 : b->h);
        return;
    }
    arena_slot dh = take_rows(t, t->f, MEMORY_TEMPORARY, layer, "d_swiglu");
    linear_dx(t, LINEAR_W2, layer, dy, dh);
    swiglu_backward(t, layer, b->gate_up, dh, kept ? -1 : b->h);
    step_drop(t, &dh);
}

/* *dy, the gradient of the block's output, becomes that of its input. */
static void mlp_backward(trainer *t, int layer, block_slots *b, keep k, arena_slot *dy)
{
    if (k.product)
        linear_dw(t, LINEAR_W2, layer, *dy, b->h);
    product_backward(t, layer, b, k.product, *dy);
    if (!k.product) /* h was made again by the line above */
        linear_dw(t, LINEAR_W2, layer, *dy, b->h);
    side_drop(t, &b->h);
    linear_dw(t, LINEAR_GATE_UP, layer, b->gate_up, b->n2);
    arena_slot dn = take_rows(t, t->d, MEMORY_TEMPORARY, layer, "d_norm2");
    linear_dx(t, LINEAR_GATE_UP, layer, b->gate_up, dn);
    side_drop(t, &b->gate_up);
    side_drop(t, &b->n2);
    arena_slot dx = take_rows(t, t->d, MEMORY_TEMPORARY, layer, "d_residual_mid");
    norm_backward(t, PARAM_LN2, layer, b->x_mid, b->rstd2, dn, *dy, dx);
    step_drop(t, &dn);
    step_drop(t, &b->rstd2);
    step_drop(t, &b->x_mid);
    side_drop(t, dy);
    *dy = dx;
}

static void attention_half_backward(trainer *t, int layer, block_slots *b, keep k, arena_slot *dy)
{
    if (!k.attention) {
        attention_half(t, layer, b);
    } else if (!k.norms) {
        b->n1 = take_rows(t, t->d, MEMORY_TEMPORARY, layer, "norm1");
        norm_forward(t, PARAM_LN1, layer, b->x, b->n1, b->rstd1);
    }
    linear_dw(t, LINEAR_O, layer, *dy, b->att);
    arena_slot d_att = take_rows(t, t->d, MEMORY_TEMPORARY, layer, "d_attention_out");
    linear_dx(t, LINEAR_O, layer, *dy, d_att);
    arena_slot d_qkv = take_rows(t, t->qkv, MEMORY_TEMPORARY, layer, "d_qkv");
    attention_backward(t, layer, b, d_att, d_qkv);
    step_drop(t, &d_att);
    step_drop(t, &b->qkv);
    step_drop(t, &b->lse);
    step_drop(t, &b->saved);
    side_drop(t, &b->att);
    rope(t, layer, d_qkv, true);
    linear_dw(t, LINEAR_QKV, layer, d_qkv, b->n1);
    arena_slot dn = take_rows(t, t->d, MEMORY_TEMPORARY, layer, "d_norm1");
    linear_dx(t, LINEAR_QKV, layer, d_qkv, dn);
    side_drop(t, &d_qkv);
    side_drop(t, &b->n1);
    arena_slot dx = take_rows(t, t->d, MEMORY_TEMPORARY, layer, "d_residual");
    norm_backward(t, PARAM_LN1, layer, b->x, b->rstd1, dn, *dy, dx);
    step_drop(t, &dn);
    step_drop(t, &b->rstd1);
    step_drop(t, &b->x);
    side_drop(t, dy);
    *dy = dx;
}

/* Blocks [first, end) once more, from the input that is held of the first one; what the last one puts out becomes the
 * input of `end`, if that is wanted. */
static void blocks_again(trainer *t, int first, int end, keep k, bool output)
{
    for (int l = first; l < end; l++) {
        k.input = k.mlp || l == first;
        k.output = output || l < end - 1;
        unit_acquire(t, l);
        block_forward(t, l, &t->blocks[l], k);
        unit_release(t);
        if (k.output) {
            t->blocks[l + 1] = nothing;
            t->blocks[l + 1].x = t->x;
        }
    }
}

/* What backward of a block needs of which forward kept its input at most. */
static void block_again(trainer *t, int layer)
{
    bool held[RECOMPUTE_LAYERS];
    for (int l = 0; l <= layer; l++)
        held[l] = t->blocks[l].x >= 0;
    recompute_forwards f;
    do {
        f = recompute_next(&t->schedule, held, layer);
        blocks_again(t, f.first, f.advance, (keep){0}, true);
        held[f.advance] = true;
        blocks_again(t, f.advance, f.keep + 1, keep_all, false);
    } while (f.keep < f.advance);
}

static void block_backward(trainer *t, int layer, arena_slot *dy)
{
    const bool whole = recompute_whole(&t->schedule, layer);
    const keep k = whole ? keep_all : keep_of(t, layer);
    block_slots *b = &t->blocks[layer];
    range_push("block backward");
    side_unit_begin(t, layer);
    offload_fetch(t, layer);
    if (whole && b->x_mid < 0)
        block_again(t, layer);
    unit_acquire(t, layer);
    unit_grads_begin(t, layer);
    block_recompute(t, layer, b, k);
    mlp_backward(t, layer, b, k, dy);
    attention_half_backward(t, layer, b, k, dy);
    unit_release(t);
    unit_grads_end(t, layer);
    side_unit_end(t, layer);
    range_pop();
}

static void head_backward(trainer *t, arena_slot logits, arena_slot *dy)
{
    const int layers = t->o.config.layers;
    block_slots *head = &t->blocks[layers];
    side_unit_begin(t, layers);
    unit_acquire(t, -1);
    unit_grads_begin(t, -1);
    arena_slot dn = -1;
    if (t->o.loss_chunk) {
        dn = take_rows(t, t->d, MEMORY_TEMPORARY, -1, "d_norm_final");
        head_by_chunks(t, head, dn);
        step_drop(t, &head->n1);
    } else {
        linear_dw(t, LINEAR_HEAD, -1, logits, head->n1);
        dn = take_rows(t, t->d, MEMORY_TEMPORARY, -1, "d_norm_final");
        linear_dx(t, LINEAR_HEAD, -1, logits, dn);
        side_drop(t, &logits);
        side_drop(t, &head->n1);
    }
    *dy = take_rows(t, t->d, MEMORY_TEMPORARY, -1, "d_residual");
    norm_backward(t, PARAM_LN_FINAL, -1, head->x, head->rstd1, dn, -1, *dy);
    step_drop(t, &dn);
    step_drop(t, &head->rstd1);
    step_drop(t, &head->x);
    unit_release(t);
    unit_grads_end(t, -1);
    side_unit_end(t, layers);
}

static void embedding_backward(trainer *t, arena_slot *dy)
{
    const int64_t count = (int64_t)t->vocab * t->d;
    side_unit_begin(t, -1);
    unit_grads_begin(t, t->o.config.layers);
    sb_embedding e = embedding_of(t);
    e.workspace_bytes = t->k->train->embedding_workspace(t->ctx, &e);
    arena_slot workspace = step_take(t, e.workspace_bytes, MEMORY_WORKSPACE, -1, "embedding");
    e.workspace = step_pointer(t, workspace);
    e.d_out = step_pointer(t, *dy);
    e.d_table = step_grad(t, PARAM_EMBEDDING, -1, count);
    if (step_go(t))
        step_done(t, t->k->train->embedding_backward(t->ctx, &e, t->main));
    step_drop(t, &workspace);
    step_drop(t, dy);
    step_ready(t, PARAM_EMBEDDING, -1, count, t->main);
    unit_grads_end(t, t->o.config.layers);
    side_unit_end(t, -1);
}

void transformer_backward(trainer *t, arena_slot logits)
{
    arena_slot dy;
    arena_phase(t->arena, PHASE_BACKWARD);
    range_push("backward");
    side_begin(t);
    head_backward(t, logits, &dy);
    for (int l = t->o.config.layers - 1; l >= 0; l--)
        block_backward(t, l, &dy);
    embedding_backward(t, &dy);
    side_end(t);
    units_end(t);
    range_pop();
}
