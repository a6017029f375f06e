/* SPDX-License-Identifier: MIT */
/* What a way of context parallelism is made of; everything enqueues. */
#pragma once

#include "common/context/context.h"

/* Pieces that lie behind each other in the workspace: the chunks of a sequence, as a rule. */
typedef struct pieces {
    char *data;
    int heads;    /* of a group */
    size_t piece; /* elements */
} pieces;

static inline size_t context_aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}
void *carve(context *k, size_t bytes);                 /* of the workspace; the same in every pass */
pieces pieces_carve(context *k, bool keys, int count); /* of the shape of k, or of q */
void *pieces_at(const context *k, const pieces *t, int chunk);
sb_tensor pieces_view(const context *k, const pieces *t, const void *data); /* as attention takes it */

/* A rank's chunk of a group of heads, as attention takes it. */
sb_tensor chunk_view(const context *k, const context_tensor *t, int group, int which);
/* To a rank's chunk from a piece, a + b or a alone, or from it to a piece. */
void chunk_put(context *k, const context_tensor *t, bool keys, int group, int which, context_operand a,
               context_operand b);
void chunk_take(context *k, const context_tensor *t, bool keys, int group, int which, void *piece);
/* Dense rows of pieces: elements of any piece, in fp32 or in the dtype of the case. */
context_operand dense(const context *k, bool fp32, const void *data, bool keys);

/* The part of attention in `a` joins the sum of a chunk: o in fp32, a piece, and lse. */
void merge(context *k, const sb_attention *a, bool first, float *o_sum, float *lse_sum);

/* Between moves_begin and _end, on the side stream: a piece goes from one member to another, or stays. All members name the
 * moves in the same order. Where this rank is not the sender, src is any piece of its own. */
void moves_begin(context *k);
void move(context *k, int from, int to, const void *src, void *dst, size_t elements, comm_dtype t);
void moves_end(context *k);
void record(context *k, void *stream, device_event *e);
void await(context *k, void *stream, device_event *e); /* recorded in this pass */

bool breaks(const context *k, context_fault f); /* on this rank */

void gather_forward(context *k), gather_backward(context *k);
void to_heads_forward(context *k), to_heads_backward(context *k);
void ring_forward(context *k), ring_backward(context *k);
