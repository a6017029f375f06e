/* SPDX-License-Identifier: MIT */
/* The worst moments of backward; see memory.h. The chain of activation gradients goes down the blocks. Weight
 * gradients stay until the end of the step; with overlap, their inputs stay until their stream has read them. */
#include "common/formulas/memory_backward.h"

static const kept kept_all = {true, true, true, true, true, true};

/* A backward norm likewise, with three fp32 tensors and a value of each row; the sums are down columns, then along
 * rows. */
static void norm_backward_moment(const walk *w, int64_t activation, int64_t temporary)
{
    const memory_scratch *s = &w->p->scratch;
    const int64_t sums = s->column_sums > s->row_sums ? s->column_sums : s->row_sums;
    if (w->p->eager)
        memory_moment(w, activation, temporary + 3 * w->t.x32 + w->t.rstd, sums);
    else
        memory_moment(w, activation, temporary, s->norm_backward);
}

/* A gradient is written: it is held from here on. */
static void grad(walk *w, int64_t elements)
{
    if (w->p->share_grad_memory)
        w->beside.grad += memory_padded(w->p, elements) * w->p->grad_bytes;
}

/* A weight gradient's product; with overlap the side stream's workspace is held all the time. */
static void dw_moment(const walk *w, memory_product product, int64_t activation, int64_t temporary)
{
    memory_moment(w, activation, temporary, w->p->overlap ? 0 : w->p->scratch.dw[product]);
}

static int64_t most_dw(const memory_step *p)
{
    int64_t most = 0;
    for (int i = 0; i < (p->loss_chunk ? PRODUCT_HEAD : MEMORY_PRODUCTS); i++)
        most = p->scratch.dw[i] > most ? p->scratch.dw[i] : most;
    return most;
}

/* Bytes of a block in backward that are its own: activations, and gradients of activations. */
typedef struct own {
    int64_t activation, temporary;
} own;

/* The feed-forward half, from `o` to what is left of it. What weight gradients read is `late` with overlap: the side
 * stream may not have read it when main is done with it. */
static own mlp_backward(walk *w, int64_t before, kept k, own o)
{
    const tensors *t = &w->t;
    const memory_scratch *s = &w->p->scratch;
    const transformer_shape *shape = &w->p->shape;
    const bool late = w->p->overlap, norm_again = k.mlp && !k.norms, product_again = k.mlp && !k.product;
    if (!k.mlp) {
        memory_mlp_half_forward(w, before + o.activation, o.temporary, true);
        o.activation += memory_mlp_half(t, true, true);
    }
    if (norm_again) {
        o.temporary += t->x;
        memory_norm_moment(w, before + o.activation, o.temporary);
    }
    o.temporary += product_again ? t->h : 0;
    if (!product_again) {
        grad(w, shape->d_model * shape->d_ff);
        dw_moment(w, PRODUCT_W2, before + o.activation, o.temporary);
    }
    const int64_t dh = w->p->swiglu_matmul ? 0 : t->h; /* gradient of h */
    if (!w->p->swiglu_matmul)
        memory_moment(w, before + o.activation, o.temporary + dh, s->dx[PRODUCT_W2]);
    memory_moment(w, before + o.activation, o.temporary + dh + (w->p->eager ? 2 * t->h : 0), 0); /* SwiGLU; in place */
    if (product_again) {
        grad(w, shape->d_model * shape->d_ff);
        dw_moment(w, PRODUCT_W2, before + o.activation, o.temporary);
    }
    o.temporary -= product_again && !late ? t->h : 0;
    o.activation -= product_again || late ? 0 : t->h;
    grad(w, 2 * shape->d_ff * shape->d_model);
    dw_moment(w, PRODUCT_GATE_UP, before + o.activation, o.temporary);
    o.temporary += t->x; /* gradient of n2 */
    memory_moment(w, before + o.activation, o.temporary, s->dx[PRODUCT_GATE_UP]);
    if (!late) {
        o.activation -= t->gate_up + (norm_again ? 0 : t->x);
        o.temporary -= norm_again ? t->x : 0;
    }
    o.temporary += t->x; /* gradient of x_mid */
    grad(w, shape->d_model);
    norm_backward_moment(w, before + o.activation, o.temporary);
    o.activation -= t->rstd + t->x;
    o.temporary -= t->x + (late ? 0 : t->x); /* that of n2, and that of the block's output */
    return o;
}

static own attention_backward(walk *w, int64_t before, kept k, own o)
{
    const tensors *t = &w->t;
    const memory_scratch *s = &w->p->scratch;
    const int64_t d = w->p->shape.d_model;
    const bool late = w->p->overlap, norm_again = k.projection && !k.norms;
    if (!k.attention) {
        memory_attention_half_forward(w, before + o.activation, o.temporary);
        o.activation += memory_attention_half(t, true);
    } else if (!k.projection) {
        memory_projection_forward(w, before + o.activation, o.temporary);
        o.activation += memory_projection(t, true);
    }
    if (norm_again) {
        o.temporary += t->x;
        memory_norm_moment(w, before + o.activation, o.temporary);
    }
    grad(w, d * d);
    dw_moment(w, PRODUCT_O, before + o.activation, o.temporary);
    o.temporary += t->x; /* gradient of the attention's output */
    memory_moment(w, before + o.activation, o.temporary, s->dx[PRODUCT_O]);
    o.temporary += t->qkv; /* gradients of q, k, v */
    memory_moment(w, before + o.activation, o.temporary, s->attention_backward);
    o.temporary -= t->x;
    o.activation -= t->qkv + t->scores + (late ? 0 : t->x);
    grad(w, d * (d + 2 * memory_kv_width(&w->p->shape)));
    dw_moment(w, PRODUCT_QKV, before + o.activation, o.temporary);
    o.temporary += t->x; /* gradient of n1 */
    memory_moment(w, before + o.activation, o.temporary, s->dx[PRODUCT_QKV]);
    if (!late) {
        o.temporary -= t->qkv + (norm_again ? t->x : 0);
        o.activation -= norm_again ? 0 : t->x;
    }
    o.temporary += t->x; /* gradient of the block's input */
    grad(w, d);
    norm_backward_moment(w, before + o.activation, o.temporary);
    o.activation -= t->rstd + t->x;
    o.temporary -= t->x + (late ? 0 : t->x);
    return o;
}

/* The forwards that backward runs to have what a block kept nothing of; the gradient of its output is held. */
static void block_again(walk *w, int64_t layer)
{
    bool held[RECOMPUTE_LAYERS];
    for (int64_t l = 0; l <= layer; l++)
        held[l] = w->now[l].input;
    recompute_forwards f;
    do {
        f = recompute_next(&w->p->schedule, held, (int)layer);
        for (int l = f.first; l < f.advance; l++)
            memory_block_forward(w, memory_kept_before(w, l), w->now[l], true, w->t.x);
        held[f.advance] = w->now[f.advance].input = true;
        for (int l = f.advance; l <= f.keep; l++) {
            memory_block_forward(w, memory_kept_before(w, l), kept_all, l < f.keep, w->t.x);
            w->now[l] = kept_all;
        }
    } while (f.keep < f.advance);
}

/* Before the last block, all that come back as early; then one more for each. */
static void fetch(walk *w, int64_t l)
{
    const recompute_schedule *s = &w->p->schedule;
    const int64_t first = l - (s->ahead > 1 ? s->ahead : 1), last = l == w->p->shape.layers - 1 ? l : first;
    for (int64_t i = first > 0 ? first : 0; i <= last; i++)
        w->away[i] = 0;
}

/* One block. What is left with overlap, until the side stream has read it. */
static own block_backward(walk *w, int64_t l)
{
    const tensors *t = &w->t;
    fetch(w, l);
    if (recompute_whole(&w->p->schedule, (int)l) && !w->now[l].mlp)
        block_again(w, l);
    const kept k = w->now[l];
    const int64_t before = memory_kept_before(w, l);
    own o = {memory_kept_bytes(t, k), t->x}; /* with the gradient of its output */
    o = mlp_backward(w, before, k, o);
    if (t->attends)
        o = attention_backward(w, before, k, o);
    o.temporary -= t->x; /* the gradient of its input goes on to the block before */
    return o;
}

/* The logits of some tokens at a time, on one stream. */
static own head_by_chunks(walk *w, int64_t before)
{
    const tensors *t = &w->t;
    const memory_scratch *s = &w->p->scratch;
    const int64_t tokens = memory_tokens(w->p), chunk = w->p->loss_chunk < tokens ? w->p->loss_chunk : tokens;
    const int64_t held = before + t->x + t->rstd;
    grad(w, w->p->shape.vocab * w->p->shape.d_model);
    for (int part = PRODUCT_HEAD; part <= PRODUCT_HEAD_REST; part++) {
        const int64_t logits = t->logits / tokens * (part == PRODUCT_HEAD ? chunk : tokens % chunk);
        memory_moment(w, held + t->x, t->x + logits, s->forward[part]);
        memory_moment(w, held + t->x, t->x + logits, s->dw[part]);
        memory_moment(w, held + t->x, t->x + logits, s->dx[part]);
    }
    memory_moment(w, held + t->x, t->x, s->mean_loss);
    grad(w, w->p->shape.d_model);
    norm_backward_moment(w, held, 2 * t->x);
    return (own){0, 0};
}

static own head_backward(walk *w, int64_t before)
{
    const tensors *t = &w->t;
    if (w->p->loss_chunk)
        return head_by_chunks(w, before);
    const transformer_shape *s = &w->p->shape;
    int64_t held = before + t->x + t->rstd + t->x + t->logits;
    grad(w, s->vocab * s->d_model);
    dw_moment(w, PRODUCT_HEAD, held, 0);
    memory_moment(w, held, t->x, w->p->scratch.dx[PRODUCT_HEAD]);
    if (!w->p->overlap)
        held -= t->logits + t->x;
    grad(w, s->d_model);
    norm_backward_moment(w, held, 2 * t->x);
    return (own){w->p->overlap ? t->logits + t->x : 0, 0};
}

/* Units are the head, each block, the embedding. What one leaves for the side stream goes when the second unit after
 * it begins. */
static void unit_begin(walk *w, own *older, own *newer)
{
    w->beside.activation += newer->activation - older->activation;
    w->beside.temporary += newer->temporary - older->temporary;
    *older = *newer;
}

void memory_backward(walk *w)
{
    const int64_t layers = w->p->shape.layers;
    w->beside.workspace += w->p->overlap ? most_dw(w->p) : 0;
    own older = {0, 0}, newer = head_backward(w, memory_kept_before(w, layers));
    for (int64_t l = layers - 1; l >= 0; l--) {
        unit_begin(w, &older, &newer);
        newer = block_backward(w, l);
    }
    unit_begin(w, &older, &newer);
    int64_t behind;
    memory_index_space(w->p, &behind);
    grad(w, memory_padded(w->p, w->p->shape.vocab * w->p->shape.d_model) + behind);
    memory_moment(w, 0, w->t.x, w->p->scratch.embedding_backward);
}
