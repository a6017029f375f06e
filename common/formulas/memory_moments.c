/* SPDX-License-Identifier: MIT */
/* The tensors of a step, and the moments of its forward parts. Each function goes through the ops of one part and
 * says, as sums of tensors, what is held while the op runs; the largest sum is the peak. */
#include "common/formulas/memory_moments.h"

int64_t memory_total(const memory_bytes *b)
{
    return b->param + b->master + b->moment1 + b->moment2 + b->grad + b->activation + b->temporary + b->workspace +
           b->other;
}

int64_t memory_tokens(const memory_step *p)
{
    return p->shape.batch * p->shape.seq;
}

int64_t memory_padded(const memory_step *p, int64_t elements)
{
    const int64_t start = p->alignment > 1 ? p->alignment : 1;
    return (elements + start - 1) / start * start;
}

/* ---- the tensors of a block ---- */

int64_t memory_kv_width(const transformer_shape *s)
{
    return s->heads ? s->d_model / s->heads * s->heads_kv : 0;
}

tensors memory_tensors(const memory_step *p)
{
    const transformer_shape *s = &p->shape;
    const int64_t row = memory_tokens(p) * p->activation_bytes;
    return (tensors){.x = row * s->d_model,
                     .x32 = memory_tokens(p) * s->d_model * 4,
                     .rstd = memory_tokens(p) * 4,
                     .qkv = row * (s->d_model + 2 * memory_kv_width(s)),
                     .scores = memory_tokens(p) * s->heads * 4 + p->scratch.attention_saved,
                     .gate_up = row * 2 * s->d_ff,
                     .h = row * s->d_ff,
                     .logits = row * s->vocab,
                     .attends = s->heads > 0};
}

kept memory_kept_by(const memory_step *p, int64_t block)
{
    if (!p->backward)
        return (kept){0};
    const recompute what = (recompute)p->schedule.what[block];
    if (recompute_whole(&p->schedule, (int)block))
        return (kept){.input = p->schedule.input[block]};
    const bool all = what != RECOMPUTE_SELECTIVE;
    const bool but_attention = what == RECOMPUTE_BUT_ATTENTION, attention = what != RECOMPUTE_ATTN;
    return (kept){true, all, all, attention, what != RECOMPUTE_MLP && !but_attention, attention && !but_attention};
}

int64_t memory_projection(const tensors *t, bool norm)
{
    return t->attends ? t->rstd + (norm ? t->x : 0) + t->qkv : 0;
}

int64_t memory_attention_half(const tensors *t, bool norm)
{
    return t->attends ? memory_projection(t, norm) + t->scores + t->x : 0;
}

/* What forward leaves of the attention half. */
static int64_t attention_left(const tensors *t, kept k)
{
    return (k.projection ? memory_projection(t, k.norms) : 0) + (t->attends && k.attention ? t->scores + t->x : 0);
}

int64_t memory_mlp_half(const tensors *t, bool norm, bool product)
{
    return t->rstd + (norm ? t->x : 0) + t->gate_up + (product ? t->h : 0);
}

int64_t memory_kept_bytes(const tensors *t, kept k)
{
    return (k.input ? t->x : 0) + attention_left(t, k) + (t->attends && (k.attention || k.mlp) ? t->x : 0) +
           (k.mlp ? memory_mlp_half(t, k.norms, k.product) : 0);
}

static int64_t away_bytes(const walk *w, int64_t block)
{
    const tensors *t = &w->t;
    const kept k = w->now[block];
    const int kinds = w->away[block];
    const int64_t norm = k.norms ? t->x : 0, residual = (k.input ? t->x : 0) + (k.attention || k.mlp ? t->x : 0);
    return (kinds & OFFLOAD_RESIDUAL ? residual : 0) +
           (kinds & OFFLOAD_ATTN && k.attention ? t->x + w->p->scratch.attention_saved : 0) +
           (kinds & OFFLOAD_ATTN && k.projection ? norm + t->qkv : 0) +
           (kinds & OFFLOAD_MLP && k.mlp ? norm + t->gate_up + (k.product ? t->h : 0) : 0);
}

/* ---- the index space of the parameters ---- */

int64_t memory_index_space(const memory_step *p, int64_t *behind)
{
    const transformer_shape *s = &p->shape;
    const int64_t d = s->d_model, gain = memory_padded(p, d), table = memory_padded(p, s->vocab * d);
    const int64_t attention =
        s->heads ? memory_padded(p, d * d) + memory_padded(p, d * (d + 2 * memory_kv_width(s))) + gain : 0;
    const int64_t block = memory_padded(p, d * s->d_ff) + memory_padded(p, 2 * d * s->d_ff) + gain + attention;
    const int64_t tensors = 2 * table + gain + s->layers * block, unit = p->granularity > 1 ? p->granularity : 1;
    const int64_t all = (tensors + unit - 1) / unit * unit;
    if (behind)
        *behind = all - tensors;
    return all;
}

/* ---- moments ---- */

void memory_moment(const walk *w, int64_t activation, int64_t temporary, int64_t workspace)
{
    memory_bytes now = w->beside;
    now.activation += activation;
    now.temporary += temporary;
    now.workspace += workspace;
    if (memory_total(&now) > memory_total(w->worst))
        *w->worst = now;
}

/* A forward norm is one op, or passes with two fp32 tensors and a sum along rows. */
void memory_norm_moment(const walk *w, int64_t activation, int64_t temporary)
{
    const bool eager = w->p->eager;
    memory_moment(w, activation, temporary + (eager ? 2 * w->t.x32 : 0), eager ? w->p->scratch.row_sums : 0);
}

/* ---- forward ---- */

void memory_projection_forward(const walk *w, int64_t held, int64_t temporary)
{
    const tensors *t = &w->t;
    memory_norm_moment(w, held + t->rstd + t->x, temporary);
    memory_moment(w, held + memory_projection(t, true), temporary, w->p->scratch.forward[PRODUCT_QKV]);
}

void memory_attention_half_forward(const walk *w, int64_t held, int64_t temporary)
{
    memory_projection_forward(w, held, temporary);
    memory_moment(w, held + memory_attention_half(&w->t, true), temporary, w->p->scratch.attention_forward);
}

/* The feed-forward half's tensors while it runs. */
static int64_t mlp_half_made(const walk *w, bool norm, bool keep)
{
    return memory_mlp_half(&w->t, norm, true) - (w->p->swiglu_matmul && !keep ? w->t.gate_up : 0);
}

void memory_mlp_half_forward(const walk *w, int64_t held, int64_t temporary, bool keep)
{
    const tensors *t = &w->t;
    memory_norm_moment(w, held + t->rstd + t->x, temporary);
    if (!w->p->swiglu_matmul)
        memory_moment(w, held + t->rstd + t->x + t->gate_up, temporary, w->p->scratch.forward[PRODUCT_GATE_UP]);
    memory_moment(w, held + mlp_half_made(w, true, keep), temporary + (w->p->eager ? t->h : 0), 0); /* silu(gate) */
}

void memory_block_forward(const walk *w, int64_t before, kept k, bool output, int64_t temporary)
{
    const tensors *t = &w->t;
    const memory_scratch *s = &w->p->scratch;
    const int64_t sum = w->p->eager ? t->x : 0; /* a product to which the residual stream is yet to be added */
    if (t->attends) {
        memory_attention_half_forward(w, before + t->x, temporary);
        memory_moment(w, before + t->x + memory_attention_half(t, k.norms) + t->x, temporary + sum,
                      s->forward[PRODUCT_O]);
    }
    const int64_t held = before + (t->attends && k.input ? t->x : 0) + attention_left(t, k) + t->x; /* x_mid */
    memory_mlp_half_forward(w, held, temporary, k.mlp);
    if (output)
        memory_moment(w, held + mlp_half_made(w, k.norms, k.mlp) + t->x, temporary + sum, s->forward[PRODUCT_W2]);
}

int64_t memory_kept_before(const walk *w, int64_t block)
{
    int64_t bytes = 0;
    for (int64_t l = 0; l < block; l++)
        bytes += memory_kept_bytes(&w->t, w->now[l]) - away_bytes(w, l);
    return bytes;
}
