/* SPDX-License-Identifier: MIT */
/* Forward, loss and backward of the transformer, as one reads them in the paper, part by part: a whole model is one part.
 * What is kept and what is computed again is decided here, how an op is launched in ops.c and linear.c, and how parts
 * give each other x and its gradient in hops.c.
 *
 * x = E[ids]; for each block: x_mid = x + Wo attention(rope(Wqkv norm1(x))); x = x_mid + W2 swiglu(W13 norm2(x_mid));
 * logits = Whead norm(x). Without attention x_mid is x, in the same slot. */
#include "common/step/transformer.h"

#include "common/record/nvtx.h"
#include "common/step/exchange.h"
#include "common/step/linear_float8.h"
#include "common/step/offload.h"
#include "common/step/ops.h"
#include "common/step/streams.h"
#include "common/step/tensors.h"
#include "common/step/units.h"

/* What the forward of a block leaves behind. */
typedef struct keep {
    bool norms, product; /* n1, n2; h */
    bool attention, mlp; /* what the attention half and the feed-forward half made */
    bool projection;     /* of the attention half, what came before attention itself: n1, q, k and v */
    bool input;          /* x */
    bool output;         /* whether the block's output is wanted at all */
} keep;

static const keep keep_all = {true, true, true, true, true, true, true},
                  keep_inside = {true, true, true, true, true, true, false};

static keep keep_of(const step *s, int layer)
{
    keep k = keep_all;
    if (s->o.mode == STEP_FORWARD)
        return (keep){.output = true};
    switch ((recompute)s->schedule.what[layer]) {
    case RECOMPUTE_NONE: break;
    case RECOMPUTE_SELECTIVE: k.norms = k.product = false; break;
    case RECOMPUTE_ATTN: k.attention = k.projection = false; break;
    case RECOMPUTE_MLP: k.mlp = false; break;
    case RECOMPUTE_BUT_ATTENTION: k.projection = k.mlp = false; break;
    case RECOMPUTE_BLOCK:
    case RECOMPUTE_NESTED: k = (keep){.input = s->schedule.input[layer], .output = true}; break;
    case RECOMPUTE_KINDS: break;
    }
    return k;
}

/* ---- forward of a block ---- */

/* y = x W^T, plus the residual. `keep`: dw wants x, of which float8 makes a copy for it here. */
static void forward_of(step *s, int which, int layer, block_slots *b, arena_slot x, bool keep, arena_slot residual,
                       arena_slot y)
{
    if (keep)
        float8_input(s, which, layer, x, &b->turned[which]);
    linear_forward(s, which, layer, x, residual, y);
}

/* An input that no other op of the backward reads. */
static void drop_turned(step *s, const block_slots *b, int which, arena_slot *x)
{
    if (b->turned[which] >= 0)
        step_drop(s, x);
}

/* The norm ahead of a linear layer: of which the backward wants the output with `keep`, or `again` makes it for that. -1: it was made
 * within the casts of that layer's input. */
static arena_slot norm_ahead(step *s, int which, int layer, block_slots *b, bool again, bool keep)
{
    const bool first = which == LINEAR_QKV;
    const arena_slot x = first ? b->x : b->x_mid, rstd = first ? b->rstd1 : b->rstd2;
    if (float8_norm(s, which, layer, x, rstd, !again, keep ? &b->turned[which] : NULL))
        return -1;
    return norm_forward(s, first ? PARAM_LN1 : PARAM_LN2, layer, again ? MEMORY_TEMPORARY : MEMORY_ACTIVATION,
                        first ? "norm1" : "norm2", x, rstd);
}

/* Up to q, k and v. `k`: of what is made here, what backward wants. */
static void projection(step *s, int layer, block_slots *b, keep k)
{
    b->rstd1 = take_rstd(s, layer);
    b->n1 = norm_ahead(s, LINEAR_QKV, layer, b, false, k.norms && k.projection);
    b->qkv = take_rows(s, s->qkv, MEMORY_ACTIVATION, layer, "qkv");
    forward_of(s, LINEAR_QKV, layer, b, b->n1, k.norms && k.projection, -1, b->qkv);
    drop_turned(s, b, LINEAR_QKV, &b->n1);
    rope(s, layer, b->qkv, false);
}

static void attention_half(step *s, int layer, block_slots *b, keep k)
{
    projection(s, layer, b, k);
    attention_begin(s, layer, b);
}

static void drop_projection(step *s, block_slots *b)
{
    step_drop(s, &b->rstd1);
    step_drop(s, &b->n1);
    step_drop(s, &b->qkv);
}

static void drop_attention(step *s, block_slots *b)
{
    step_drop(s, &b->lse);
    step_drop(s, &b->saved);
    step_drop(s, &b->att);
}

static void mlp_half(step *s, int layer, block_slots *b, keep k)
{
    b->rstd2 = take_rstd(s, layer);
    b->n2 = norm_ahead(s, LINEAR_GATE_UP, layer, b, false, k.norms && k.mlp);
    if (k.mlp || !s->swiglu_matmul)
        b->gate_up = take_rows(s, 2 * s->f, MEMORY_ACTIVATION, layer, "gate_up");
    if (!s->swiglu_matmul)
        forward_of(s, LINEAR_GATE_UP, layer, b, b->n2, k.norms && k.mlp, -1, b->gate_up);
    drop_turned(s, b, LINEAR_GATE_UP, &b->n2);
    if (float8_swiglu_forward(s, layer, b->gate_up, k.output, k.product && k.mlp ? &b->turned[LINEAR_W2] : NULL))
        return;
    b->h = take_rows(s, s->f, MEMORY_ACTIVATION, layer, "swiglu");
    if (s->swiglu_matmul)
        swiglu_matmul_forward(s, layer, b->n2, b->gate_up, b->h);
    else
        swiglu_forward(s, layer, b->gate_up, b->h);
}

static void drop_mlp_half(step *s, block_slots *b)
{
    arena_slot *const slots[] = {&b->rstd2, &b->n2, &b->gate_up, &b->h};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        step_drop(s, slots[i]);
}

/* Where ranks share rows of whole sequences, attention and the product behind it go rank by rank. */
static bool by_sequences(const step *s)
{
    return s->o.windows && !s->attention_needs.saved && s->rows % s->o.seq == 0 && step_context_ranks(&s->o) == 1;
}

/* From b->x to b->x_mid. */
static void attention_residual(step *s, int layer, block_slots *b, keep k)
{
    const bool apart = by_sequences(s);
    attention_half(s, layer, b, k);
    if (!apart)
        attention_forward(s, layer, 0, s->tokens);
    if (!k.norms)
        step_drop(s, &b->n1);
    b->x_mid = take_stream(s, MEMORY_ACTIVATION, layer, "residual_mid");
    if (apart) /* those of other ranks first: their parts of the sum leave while the rest is made */
        linear_forward_behind(s, LINEAR_O, layer, b->att, b->x, b->x_mid, attention_forward);
    else
        forward_of(s, LINEAR_O, layer, b, b->att, k.attention, b->x, b->x_mid);
    if (!k.projection)
        drop_projection(s, b);
    if (!k.attention)
        drop_attention(s, b);
    if (!k.input)
        step_drop(s, &b->x);
}

/* From b->x to m->x (-1 where the output is not wanted). */
static void block_forward(step *s, int layer, block_slots *b, keep k)
{
    range_push("block forward");
    if (s->heads)
        attention_residual(s, layer, b, k);
    else
        b->x_mid = b->x;
    mlp_half(s, layer, b, k);
    if (!k.norms)
        step_drop(s, &b->n2);
    s->micro->x = -1;
    if (k.output) {
        s->micro->x = take_stream(s, MEMORY_ACTIVATION, layer + 1, "residual");
        forward_of(s, LINEAR_W2, layer, b, b->h, k.product && k.mlp, b->x_mid, s->micro->x);
        drop_turned(s, b, LINEAR_W2, &b->h);
    }
    if (!k.product)
        step_drop(s, &b->h);
    if (!k.mlp) {
        drop_mlp_half(s, b);
        if (!k.attention) {
            if (s->heads || !k.input)
                step_drop(s, s->heads ? &b->x_mid : &b->x);
            b->x_mid = -1;
        }
    }
    range_pop();
}

/* The walk goes on in this part, with this micro-batch. */
static void enter(step *s, step_part *p, step_micro *m, step_phase phase)
{
    s->part = p;
    s->micro = m;
    arena_phase(s->arena, phase);
}

void part_forward(step *s, step_part *p, step_micro *m)
{
    enter(s, p, m, PHASE_FORWARD);
    offload_begin(s);
    range_push("forward");
    if (!p->holds.embedding)
        hop_receive(s, false);
    hops_begun(s);
    if (p->holds.embedding)
        embedding_forward(s, m);
    for (int l = p->holds.first; l < p->holds.end; l++) {
        m->blocks[l] = block_nothing;
        m->blocks[l].x = m->x;
        step_need(s, l);
        unit_acquire(s, l);
        block_forward(s, l, &m->blocks[l], keep_of(s, l));
        unit_release(s);
        offload_send(s, l);
    }
    offload_forward_end(s);
    if (p->holds.head) {
        head_forward(s, m);
    } else {
        hops_ended(s);
        hop_send(s, false);
    }
    range_pop();
}

void part_loss(step *s, step_part *p, step_micro *m, bool backward)
{
    enter(s, p, m, PHASE_FORWARD);
    if (p->holds.head && !s->o.loss_chunk) /* else head_backward has it */
        cross_entropy(s, 0, s->tokens, m->logits, backward);
}

/* ---- backward ---- */

/* The block's activations that its forward did not leave. */
static void block_recompute(step *s, int layer, block_slots *b, keep k)
{
    if (!k.mlp) {
        mlp_half(s, layer, b, keep_inside);
    } else {
        if (!k.norms)
            b->n2 = norm_ahead(s, LINEAR_GATE_UP, layer, b, true, true);
        if (!k.product)
            b->h = take_rows(s, s->f, MEMORY_TEMPORARY, layer, "swiglu");
    }
}

/* gate_up becomes its gradient, and h is made again where it was not kept. */
static void product_backward(step *s, int layer, block_slots *b, bool kept, arena_slot dy)
{
    if (s->swiglu_matmul) {
        swiglu_matmul_backward(s, layer, dy, b->gate_up, kept ? -1 : b->h);
        return;
    }
    arena_slot dh = take_rows(s, s->f, MEMORY_TEMPORARY, layer, "d_swiglu");
    linear_dx(s, LINEAR_W2, layer, dy, dh);
    if (kept && float8_swiglu_backward(s, layer, b->gate_up, dh))
        step_drop(s, &b->gate_up); /* its gradient is only in float8 */
    else
        swiglu_backward(s, layer, b->gate_up, dh, kept ? -1 : b->h);
    step_drop(s, &dh);
}

/* Half of a block, x + out(...(in(norm(x)))), whose backward has come to the gradient of `in`'s output. */
typedef struct half {
    int in, out; /* linear layers */
    param_kind gain;
    arena_slot *x, *n, *rstd, *d; /* of the norm; d: the gradient of in's output */
    arena_slot *last, all;        /* what `out` read; all rows of the gradient of what it put out */
    const char *norm, *residual;  /* names of the gradients */
} half;

static void out_dw(step *s, int layer, half *h, arena_slot dy)
{
    linear_dw(s, h->out, layer, h->all, *h->last);
    share_drop(s, dy, &h->all, true);
    side_drop(s, h->last);
}

static void in_dw(step *s, int layer, const half *h)
{
    linear_dw(s, h->in, layer, *h->d, *h->n);
    side_drop(s, h->d);
    side_drop(s, h->n);
}

/* *dy, the gradient of the half's output, becomes that of its input. Where copy engines move rows, weight gradients are made
 * while they do: that of `out` while parts of a sum leave, that of `in` while the half's gradient goes to the other ranks; it
 * stays there until the half below has read it, which a block that is made again comes before. */
static void half_backward(step *s, int layer, half *h, arena_slot *dy)
{
    const bool windows = s->o.windows, again = layer > 0 && recompute_whole(&s->schedule, layer - 1);
    if (!windows)
        linear_dw(s, h->in, layer, *h->d, *h->n);
    arena_slot dn = take_stream(s, MEMORY_TEMPORARY, layer, h->norm);
    arena_slot part = linear_dx_part(s, h->in, layer, *h->d, dn);
    if (windows)
        out_dw(s, layer, h, *dy);
    linear_dx_sum(s, h->in, &part, dn);
    if (!windows) {
        side_drop(s, h->d);
        side_drop(s, h->n);
    }
    arena_slot dx = take_stream(s, MEMORY_TEMPORARY, layer, h->residual);
    norm_backward(s, h->gain, layer, *h->x, *h->rstd, dn, *dy, dx);
    step_drop(s, &dn);
    step_drop(s, h->rstd);
    step_drop(s, h->x);
    if (windows && (h->in == LINEAR_GATE_UP || !again))
        share_ahead(s, dx);
    if (windows)
        in_dw(s, layer, h);
    side_drop(s, dy);
    *dy = dx;
}

static void mlp_backward(step *s, int layer, block_slots *b, keep k, arena_slot *dy)
{
    const bool early = k.product && !s->o.windows; /* h is there */
    half h = {LINEAR_GATE_UP, LINEAR_W2, PARAM_LN2, &b->x_mid, &b->n2,          &b->rstd2,
              &b->gate_up,    &b->h,     -1,        "d_norm2", "d_residual_mid"};
    h.all = share_gather(s, layer, *dy, true);
    share_ahead(s, b->n2);
    if (early)
        linear_dw(s, LINEAR_W2, layer, h.all, b->h);
    product_backward(s, layer, b, k.product, h.all);
    if (early) {
        share_drop(s, *dy, &h.all, true);
        side_drop(s, &b->h);
    } else if (!s->o.windows) { /* h was made again */
        out_dw(s, layer, &h, *dy);
    }
    half_backward(s, layer, &h, dy);
}

static void attention_half_backward(step *s, int layer, block_slots *b, keep k, arena_slot *dy)
{
    if (!k.attention) {
        attention_half(s, layer, b, keep_inside);
        attention_forward(s, layer, 0, s->tokens);
    } else if (!k.projection) {
        projection(s, layer, b, keep_inside);
    } else if (!k.norms) {
        b->n1 = norm_ahead(s, LINEAR_QKV, layer, b, true, true);
    }
    arena_slot d_qkv;
    half h = {LINEAR_QKV, LINEAR_O, PARAM_LN1, &b->x, &b->n1, &b->rstd1, &d_qkv, &b->att, -1, "d_norm1", "d_residual"};
    h.all = share_gather(s, layer, *dy, true);
    share_ahead(s, b->n1);
    if (!s->o.windows)
        linear_dw(s, LINEAR_O, layer, h.all, b->att);
    arena_slot d_att = take_rows(s, s->width, MEMORY_TEMPORARY, layer, "d_attention_out");
    linear_dx(s, LINEAR_O, layer, h.all, d_att);
    if (!s->o.windows)
        share_drop(s, *dy, &h.all, true);
    d_qkv = take_rows(s, s->qkv, MEMORY_TEMPORARY, layer, "d_qkv");
    attention_backward(s, layer, b, d_att, d_qkv);
    step_drop(s, &d_att);
    step_drop(s, &b->qkv);
    step_drop(s, &b->lse);
    step_drop(s, &b->saved);
    if (!s->o.windows)
        side_drop(s, &b->att);
    if (float8_rope_backward(s, layer, d_qkv))
        step_drop(s, &d_qkv); /* it is only in float8 */
    else
        rope(s, layer, d_qkv, true);
    half_backward(s, layer, &h, dy);
}

/* Blocks [first, end) once more, from the input that is held of the first one; what the last one puts out becomes the
 * input of `end`, if that is wanted. */
static void blocks_again(step *s, int first, int end, keep k, bool output)
{
    for (int l = first; l < end; l++) {
        k.input = k.mlp || l == first;
        k.output = output || l < end - 1;
        unit_acquire(s, l);
        block_forward(s, l, &s->micro->blocks[l], k);
        unit_release(s);
        if (k.output) {
            s->micro->blocks[l + 1] = block_nothing;
            s->micro->blocks[l + 1].x = s->micro->x;
        }
    }
}

/* What backward of a block needs of which forward kept its input at most. */
static void block_again(step *s, int layer)
{
    bool held[RECOMPUTE_LAYERS];
    for (int l = 0; l <= layer; l++)
        held[l] = s->micro->blocks[l].x >= 0;
    recompute_forwards f;
    do {
        f = recompute_next(&s->schedule, held, layer);
        blocks_again(s, f.first, f.advance, (keep){0}, true);
        held[f.advance] = true;
        blocks_again(s, f.advance, f.keep + 1, keep_all, false);
    } while (f.keep < f.advance);
}

static void block_backward(step *s, int layer, arena_slot *dy)
{
    const bool whole = recompute_whole(&s->schedule, layer);
    const keep k = whole ? keep_all : keep_of(s, layer);
    block_slots *b = &s->micro->blocks[layer];
    range_push("block backward");
    side_unit_begin(s, layer);
    offload_fetch(s, layer);
    if (whole && b->x_mid < 0)
        block_again(s, layer);
    unit_acquire(s, layer);
    unit_grads_begin(s, layer);
    block_recompute(s, layer, b, k);
    mlp_backward(s, layer, b, k, dy);
    if (s->heads)
        attention_half_backward(s, layer, b, k, dy);
    else
        b->x = -1; /* it was x_mid */
    unit_release(s);
    unit_made(s, layer);
    range_pop();
}

/* The part's gradients of one micro-batch are all enqueued. */
static void weights_end(step *s, step_part *p)
{
    units_end(s);
    p->weights++;
    s->adds = false;
}

void part_backward(step *s, step_part *p, step_micro *m, bool split)
{
    const int layers = s->o.config.layers, top = p->holds.head ? layers : p->holds.end - 1;
    enter(s, p, m, PHASE_BACKWARD);
    range_push("backward");
    m->split = split;
    s->adds = s->sums_in_products && p->backwards > 0;
    side_begin(s, top, side_separate(s) && !split ? linear_side_workspace(s) : 0);
    if (!p->holds.head)
        hop_receive(s, true);
    hops_begun(s);
    if (p->holds.head)
        head_backward(s, m, &m->dy);
    for (int l = p->holds.end - 1; l >= p->holds.first; l--)
        block_backward(s, l, &m->dy);
    if (p->holds.embedding)
        embedding_backward(s, &m->dy);
    hops_ended(s);
    if (!p->holds.embedding)
        hop_send(s, true);
    if (!split)
        hops_beside(s);
    side_end(s);
    p->backwards++;
    if (!split)
        weights_end(s, p);
    range_pop();
}

void part_weights(step *s, step_part *p, step_micro *m)
{
    enter(s, p, m, PHASE_BACKWARD);
    range_push("weights");
    m->split = false;
    s->adds = s->sums_in_products && p->weights > 0;
    for (int i = 0; i < m->note_count; i++) {
        step_note *n = &m->notes[i];
        switch (n->kind) {
        case NOTE_PRODUCT: linear_dw_left(s, n); break;
        case NOTE_DROP: step_drop(s, &n->x); break;
        case NOTE_UNIT: unit_left(s, n->layer); break;
        }
    }
    m->note_count = 0;
    weights_end(s, p);
    range_pop();
}
