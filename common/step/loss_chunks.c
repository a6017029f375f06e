/* SPDX-License-Identifier: MIT */
/* The head and the loss some tokens at a time, so that the logits (T, V) never exist whole: forward of the head, softmax
 * and its gradient, and both gradients of the head for one chunk after the other. The loss comes out of the forward and
 * its backward at once, so nothing is computed twice (as in Liger Kernel, Hsu et al., 2024, and torchtune's chunked loss).
 *
 * The head's weight gradient is a sum over chunks in the dtype of gradients: in 16 bits each chunk rounds it once more. */
#include "common/step/step.h"

/* The mean over all tokens, from what each chunk left for its own. */
static void mean_loss(trainer *t)
{
    sb_reduce p = {.dtype = SB_FP32,
                   .dtype_out = SB_FP32,
                   .rows = 1,
                   .columns = t->tokens,
                   .ld = t->tokens,
                   .scale = 1.0f / (float)t->tokens,
                   .x = t->row_loss,
                   .out = t->loss + t->micro};
    p.workspace_bytes = t->k->train->reduce_workspace(t->ctx, &p);
    arena_slot workspace = step_take(t, p.workspace_bytes, MEMORY_WORKSPACE, -1, "loss");
    p.workspace = step_pointer(t, workspace);
    if (step_go(t))
        step_done(t, t->k->train->reduce(t->ctx, &p, t->main));
    step_drop(t, &workspace);
}

void head_by_chunks(trainer *t, block_slots *head, arena_slot dn)
{
    const int64_t count = (int64_t)t->vocab * t->d;
    char *dw = step_grad(t, PARAM_LM_HEAD, -1, count);
    for (int first = 0; first < t->tokens; first += t->o.loss_chunk) {
        const int left = t->tokens - first, rows = left < t->o.loss_chunk ? left : t->o.loss_chunk;
        const size_t bytes = (size_t)rows * (size_t)t->vocab * (size_t)t->element;
        arena_slot logits = step_take(t, bytes, MEMORY_TEMPORARY, -1, "logits_chunk");
        head_chunk_forward(t, first, rows, head->n1, logits);
        cross_entropy(t, first, rows, logits, true);
        head_chunk_backward(t, first, rows, logits, head->n1, dn, dw);
        step_drop(t, &logits);
    }
    mean_loss(t);
    step_ready(t, PARAM_LM_HEAD, -1, count, t->main);
}
