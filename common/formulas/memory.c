/* SPDX-License-Identifier: MIT */
/* The worst moments of a step, as memory_moments.c and memory_backward.c find them; see memory.h. */
#include "common/formulas/memory.h"

#include <stddef.h>

#include "common/formulas/memory_backward.h"
#include "common/formulas/memory_moments.h"

int64_t memory_residual(const memory_step *p)
{
    return memory_tensors(p).x;
}

int64_t memory_saved_per_block(const memory_step *p)
{
    walk w = {.p = p, .t = memory_tensors(p), .now = {memory_kept_by(p, 0)}, .away = {p->schedule.away[0]}};
    return memory_kept_before(&w, 1);
}

static void forward(walk *w)
{
    const recompute_schedule *s = &w->p->schedule;
    const int64_t layers = w->p->shape.layers, behind = s->behind > 1 ? s->behind : 1;
    for (int64_t l = 0; l < layers; l++) {
        memory_block_forward(w, memory_kept_before(w, l), memory_kept_by(w->p, l), true, 0);
        if (l >= behind)
            w->away[l - behind] = s->away[l - behind];
    }
    for (int64_t l = 0; l < layers; l++)
        w->away[l] = s->away[l];
    const int64_t held = memory_kept_before(w, layers) + w->t.x + w->t.rstd + w->t.x; /* of the head: input, norm */
    memory_norm_moment(w, held, 0);
    if (!w->p->loss_chunk)
        memory_moment(w, held + w->t.logits, 0, w->p->scratch.forward[PRODUCT_HEAD]);
}

/* ---- the step ---- */

memory_bytes memory_resident(const memory_step *p)
{
    const int64_t elements = memory_index_space(p, NULL);
    const int64_t state = p->state_elements ? p->state_elements : elements;
    const int64_t head_dim = p->shape.heads ? p->shape.d_model / p->shape.heads : 0;
    memory_bytes b = {.param = elements * p->param_bytes};
    b.other =
        3 * 4 * memory_tokens(p) + 4 + p->shape.seq * head_dim * 4 + p->state_bytes; /* ids, targets, losses, angles */
    if (p->backward && !p->share_grad_memory)
        b.grad = elements * p->grad_bytes;
    if (p->update) {
        b.master = state * p->master_bytes;
        b.moment1 = b.moment2 = state * p->moment_bytes;
    }
    return b;
}

static walk walk_of(const memory_step *p, memory_bytes *worst)
{
    walk w = {.p = p, .worst = worst};
    w.t = memory_tensors(p);
    w.beside = memory_resident(p);
    for (int64_t l = 0; l < p->shape.layers; l++)
        w.now[l] = memory_kept_by(p, l);
    return w;
}

memory_peaks memory_predict(const memory_step *p)
{
    memory_peaks peaks = {0};
    walk w = walk_of(p, &peaks.forward);
    forward(&w);
    if (p->backward) {
        w.worst = &peaks.backward;
        memory_backward(&w);
    }
    if (p->update) {
        w = walk_of(p, &peaks.update);
        w.beside.grad = memory_index_space(p, NULL) * p->grad_bytes;
        memory_moment(&w, 0, 0, p->scratch.grad_stats);
    }
    return peaks;
}
