/* SPDX-License-Identifier: MIT */
/* The ends of a model: the embedding; the last norm, the head and the loss in chunks. */
#include "common/step/transformer.h"

#include "common/step/linear.h"
#include "common/step/ops.h"
#include "common/step/exchange.h"
#include "common/step/streams.h"
#include "common/step/tensors.h"
#include "common/step/units.h"

static sb_embedding embedding_of(const step *s)
{
    return (sb_embedding){.dtype = s->dtype,
                          .dtype_grad = s->made_dtype,
                          .rows = s->tokens,
                          .vocab = s->vocab,
                          .d = s->d,
                          .ids = s->ids + (int64_t)s->micro->number * s->tokens,
                          .accumulate = s->adds,
                          .slice = share_on(s),
                          .first_id = step_split(&s->o).rank * s->vocab};
}

void embedding_forward(step *s, step_micro *m)
{
    const int layers = s->o.config.layers;
    m->x = take_stream(s, MEMORY_ACTIVATION, 0, "residual");
    sb_embedding e = embedding_of(s);
    arena_slot partial = share_partial(s, 0, m->x);
    e.out = step_pointer(s, partial);
    step_need(s, layers);
    unit_acquire(s, layers);
    e.table = step_param(s, PARAM_EMBEDDING, -1);
    if (step_go(s))
        step_done(s, s->k->train->embedding_forward(s->ctx, &e, s->main));
    share_give(s, partial);
    share_sum(s, &partial, -1, m->x);
    unit_release(s);
}

void head_forward(step *s, step_micro *m)
{
    block_slots *head = &m->blocks[s->o.config.layers];
    *head = block_nothing;
    head->x = m->x;
    m->x = -1;
    step_need(s, -1);
    unit_acquire(s, -1);
    head->rstd1 = take_rstd(s, -1);
    head->n1 = norm_forward(s, PARAM_LN_FINAL, -1, MEMORY_ACTIVATION, "norm_final", head->x, head->rstd1);
    m->logits = -1;
    if (!s->o.loss_chunk) {
        m->logits = take_rows(s, s->vocab, MEMORY_ACTIVATION, -1, "logits");
        linear_forward(s, LINEAR_HEAD, -1, head->n1, -1, m->logits);
    }
    unit_release(s);
    if (s->o.mode == STEP_FORWARD) {
        step_drop(s, &head->n1);
        step_drop(s, &head->rstd1);
        step_drop(s, &head->x);
    }
}

/* ---- backward ---- */

/* The head and the loss some tokens at a time, so that the logits (T, V) never exist whole: forward of the head,
 * softmax and its gradient, and both gradients of the head for one chunk after the other. The loss comes out of the
 * forward and its backward at once, so nothing is computed twice (as in Liger Kernel, Hsu et al., 2024, and torchtune's
 * chunked loss). The head's weight gradient is a sum over chunks in the dtype of gradients: in 16 bits each chunk
 * rounds it once more. */
static void head_by_chunks(step *s, block_slots *head, arena_slot dn)
{
    const int64_t count = (int64_t)s->vocab * s->d;
    char *dw = step_grad(s, PARAM_LM_HEAD, -1, count);
    arena_slot all = share_input(s, -1, head->n1, true), partial = share_partial(s, -1, dn);
    share_whole(s, all, s->main);
    for (int first = 0; first < s->tokens; first += s->o.loss_chunk) {
        const int left = s->tokens - first, rows = left < s->o.loss_chunk ? left : s->o.loss_chunk;
        const size_t bytes = (size_t)rows * (size_t)s->vocab * (size_t)s->element;
        arena_slot logits = step_take(s, bytes, MEMORY_TEMPORARY, -1, "logits_chunk");
        head_chunk_forward(s, first, rows, all, logits);
        cross_entropy(s, first, rows, logits, true);
        head_chunk_backward(s, first, rows, logits, all, partial, dw);
        step_drop(s, &logits);
    }
    share_drop(s, head->n1, &all, false);
    share_give(s, partial);
    share_sum(s, &partial, -1, dn);
    mean_loss(s);
    step_ready(s, PARAM_LM_HEAD, -1, count, s->main);
}

void head_backward(step *s, step_micro *m, arena_slot *dy)
{
    const int layers = s->o.config.layers;
    block_slots *head = &m->blocks[layers];
    side_unit_begin(s, layers);
    unit_acquire(s, -1);
    unit_grads_begin(s, -1);
    arena_slot dn = -1;
    if (s->o.loss_chunk) {
        dn = take_stream(s, MEMORY_TEMPORARY, -1, "d_norm_final");
        head_by_chunks(s, head, dn);
        step_drop(s, &head->n1);
    } else {
        share_ahead(s, head->n1);
        if (!s->o.windows)
            linear_dw(s, LINEAR_HEAD, -1, m->logits, head->n1);
        dn = take_stream(s, MEMORY_TEMPORARY, -1, "d_norm_final");
        arena_slot part = linear_dx_part(s, LINEAR_HEAD, -1, m->logits, dn);
        if (s->o.windows)
            linear_dw(s, LINEAR_HEAD, -1, m->logits, head->n1);
        linear_dx_sum(s, LINEAR_HEAD, &part, dn);
        side_drop(s, &m->logits);
        side_drop(s, &head->n1);
    }
    *dy = take_stream(s, MEMORY_TEMPORARY, -1, "d_residual");
    norm_backward(s, PARAM_LN_FINAL, -1, head->x, head->rstd1, dn, -1, *dy);
    step_drop(s, &dn);
    step_drop(s, &head->rstd1);
    step_drop(s, &head->x);
    unit_release(s);
    unit_made(s, layers);
}

void embedding_backward(step *s, arena_slot *dy)
{
    const int64_t count = (int64_t)s->vocab * s->d;
    side_unit_begin(s, -1);
    unit_grads_begin(s, s->o.config.layers);
    sb_embedding e = embedding_of(s);
    e.workspace_bytes = s->k->train->embedding_workspace(s->ctx, &e);
    arena_slot workspace = step_take(s, e.workspace_bytes, MEMORY_WORKSPACE, -1, "embedding");
    e.workspace = step_pointer(s, workspace);
    arena_slot all = share_gather(s, -1, *dy, true);
    share_whole(s, all, s->main);
    e.d_out = step_pointer(s, all);
    e.d_table = step_grad(s, PARAM_EMBEDDING, -1, count);
    if (step_go(s))
        step_done(s, s->k->train->embedding_backward(s->ctx, &e, s->main));
    share_drop(s, *dy, &all, false);
    step_drop(s, &workspace);
    step_drop(s, dy);
    step_ready(s, PARAM_EMBEDDING, -1, count, s->main);
    unit_made(s, -1);
}
