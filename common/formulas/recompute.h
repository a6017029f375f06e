/* SPDX-License-Identifier: MIT */
/* Which activations a step keeps for its backward and which backward computes again, block by block.
 *
 * A block that keeps no activations may keep its input. Of blocks that are recomputed in a group, the first keeps its
 * input, and backward makes all of them again at once. Nested recomputation (Griewank, 1992; Chen et al., 2016, "Training
 * Deep Nets with Sublinear Memory Cost", section 4.3) makes one block at a time, from the nearest input that is held,
 * and keeps the inputs halfway as it goes: log2 L inputs and one block are held at once, for about L/2 log2 L forwards of
 * a block on top. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "common/formulas/model.h"

/* Nothing; the norms and the SwiGLU product; the whole attention half or feed-forward half; all but attention itself, whose
 * output is kept; the whole block, alone or with its group; the whole block in nested recomputation. */
typedef enum recompute {
    RECOMPUTE_NONE,
    RECOMPUTE_SELECTIVE,
    RECOMPUTE_ATTN,
    RECOMPUTE_MLP,
    RECOMPUTE_BUT_ATTENTION,
    RECOMPUTE_BLOCK,
    RECOMPUTE_NESTED,
    RECOMPUTE_KINDS
} recompute;
#define RECOMPUTE_CHOICES "none|selective|attn|mlp|but-attention|block|nested"
const char *recompute_name(recompute r);

enum { RECOMPUTE_LAYERS = 1024 }; /* the most blocks that a schedule describes */

/* What leaves for the host's memory during the forward, of what a block keeps, and comes back in the backward: its input and
 * the residual stream between its halves; what its attention half kept; what its feed-forward half kept. Of whole blocks
 * that are computed again, only their inputs; not of groups and nested ones. */
enum { OFFLOAD_RESIDUAL = 1, OFFLOAD_ATTN = 2, OFFLOAD_MLP = 4, OFFLOAD_BLOCK = 7 };
#define OFFLOAD_CHOICES "residual|attn|mlp|block"

typedef struct recompute_schedule {
    int layers;
    unsigned char what[RECOMPUTE_LAYERS]; /* a recompute, by block */
    bool input[RECOMPUTE_LAYERS];         /* forward keeps the block's input; true unless what is BLOCK or NESTED */
    unsigned char away[RECOMPUTE_LAYERS]; /* kinds that are offloaded, by block; recompute_set leaves none */
    int behind; /* forward gives an offloaded block's memory back once this many more blocks have run; 0: as 1 */
    int ahead;  /* backward fetches it this many blocks before its own turn; 0: as 1 */
} recompute_schedule;

/* All blocks alike. `every`: blocks of a group, for RECOMPUTE_BLOCK; 1 or more. */
recompute_schedule recompute_uniform(int layers, recompute what, int every);
/* Blocks [first, first + count) of `s` anew: a group does not reach across `first`. */
void recompute_set(recompute_schedule *s, int first, int count, recompute what, int every);
/* Blocks of this kind. */
int recompute_count(const recompute_schedule *s, recompute what);
/* "14 selective, 34 none", from the first block on; "none" where all are alike. Blocks that are offloaded are
 * counted behind them: "20 mlp, 4 none, 8 selective offloaded". */
void recompute_describe(const recompute_schedule *s, char *out, size_t out_bytes);

static inline bool recompute_whole(const recompute_schedule *s, int layer)
{
    return s->what[layer] == RECOMPUTE_BLOCK || s->what[layer] == RECOMPUTE_NESTED;
}

/* Backward reaches a block of which only an input is held, its own or an earlier one's. It runs forwards of a block, in
 * this order: those that keep nothing but their output, then those that keep everything. */
typedef struct recompute_forwards {
    int first;   /* the block to start from, the nearest whose input is held */
    int advance; /* blocks [first, advance) keep nothing but the input of `first`; the output of the last is kept */
    int keep;    /* then blocks [advance, keep] keep everything; keep < advance: none, another part follows */
} recompute_forwards;
/* The next part of the way to `layer`. `held[l]`: the input of block l is held now, which the caller updates: behind
 * this part that of `advance` is, too. The way ends with the part that keeps. */
recompute_forwards recompute_next(const recompute_schedule *s, const bool *held, int layer);

/* Products that backward makes again, in how many blocks; `flash`: attention's scores as well, in all. */
transformer_repeats recompute_repeats(const recompute_schedule *s, bool flash);
/* Forwards of whole blocks in backward: those that keep what backward needs, and those that only lead to one. */
typedef struct recompute_work {
    int kept, passed;
} recompute_work;
recompute_work recompute_work_of(const recompute_schedule *s);
