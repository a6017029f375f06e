/* SPDX-License-Identifier: MIT */
/* What ranks give each other in a walk: those that hold other parts of the model (hops.c), and those that share each layer
 * (share.c). */
#pragma once

#include "common/step/step.h"

/* ---- parts ---- */

void hops_open(step *s, int action); /* what this action and the next one are given may come */
void hops_end(step *s);              /* the step is over: all that was given has been read */
void hops_begun(step *s);            /* what the present action receives is there */
void hops_ended(step *s);            /* its last op is enqueued */
void hops_beside(step *s);           /* and that of the side stream */
/* The residual stream, or with `backward` its gradient, of the present micro-batch comes from the part before, or behind;
 * or goes to the part behind, or before. */
void hop_receive(step *s, bool backward);
void hop_send(step *s, bool backward);

/* ---- ranks that share layers ---- */

/* {1, 0} where a rank has whole layers. */
static inline model_split step_split(const step_options *o)
{
    return o->split_layers.ranks > 1 ? o->split_layers : (model_split){1, 0};
}
bool share_on(const step *s);
/* How a layer's weight is cut: each rank has some of its outputs, or of its inputs. */
bool share_outputs(const step *s, param_kind kind);
bool share_inputs(const step *s, param_kind kind);

/* All rows (T, d) of x, of which each rank has its own: x itself where each rank has all. The slot is dropped by
 * share_drop: when main has read it, or `aside` when the side stream has, too. With options.windows it is a
 * window: who reads it walks its pieces, or if `whole`, all of it behind share_whole. */
arena_slot share_gather(step *s, int layer, arena_slot x, bool whole);
/* All rows of a norm's output: with options.keep_rows it has them already, by share_norm behind the norm. */
arena_slot share_input(step *s, int layer, arena_slot n, bool whole);
void share_norm(step *s, int layer, arena_slot *n);
void share_drop(step *s, arena_slot x, arena_slot *all, bool aside);

/* Where a product of all rows goes that is a part of a sum: y itself where each rank has all rows. Then y is the sum's. */
arena_slot share_partial(step *s, int layer, arena_slot y);
/* y: the sum, of this rank's rows, plus the residual where it is not -1. Sends what share_end has not. */
void share_sum(step *s, arena_slot *partial, arena_slot residual, arena_slot y);

/* A product of x walks so many pieces, one where there are no windows. `sum`: its output is a part of a sum. */
typedef struct share_piece {
    arena_slot rows; /* the input's rows are those from `from` on, here */
    int from;
    int at, count; /* and those from `at` on of the product */
    int rank;      /* whose they are */
} share_piece;
int share_pieces(const step *s, arena_slot x, bool sum);
share_piece share_begin(step *s, arena_slot x, int i, bool sum); /* main waits for the rows */
/* Where the product writes the piece's rows, of so many columns. */
void *share_place(const step *s, arena_slot y, const share_piece *p, int columns, bool sum);
void share_end(step *s, arena_slot partial, const share_piece *p, bool sum);
void share_give(step *s, arena_slot partial);          /* all pieces of a sum that no product made piece by piece */
void share_whole(step *s, arena_slot x, void *stream); /* waits for all rows of x, if they come from other ranks */
/* The backward will want all rows of this by share_gather: with options.windows they may come meanwhile. */
void share_ahead(step *s, arena_slot n);
arena_slot share_sent(step *s, arena_slot n);
arena_slot share_spread(step *s, arena_slot x, bool whole);
void share_close(step *s, arena_slot *window);
void share_add_parts(step *s, arena_slot partial, arena_slot residual, arena_slot y);

/* Sums of the gradients that ranks have parts of though they hold the same tensor: all gains, and a block's key and value heads
 * that neighbours share. Once they are all made, in front of what tells hooks so; on main. */
void share_gains(step *s, void *sums, int64_t count, sb_dtype t);
bool share_keys(const step *s);                       /* neighbours share them */
void share_keys_sum(step *s, void *sums, sb_dtype t); /* (2 kv, d): those of the values follow */

/* The loss of tokens [first, first + rows), whose logits' columns are shared out. */
void share_loss(step *s, int first, int rows, arena_slot logits, bool backward);
