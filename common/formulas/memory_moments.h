/* SPDX-License-Identifier: MIT */
/* The tensors of a step, and the moments at which something is held; what forward and backward of the closed form
 * share. Not part of the API. */
#pragma once

#include "common/formulas/memory_types.h"

/* Bytes of each. */
typedef struct tensors {
    int64_t x;   /* also both norms, the attention's output and the gradients of these */
    int64_t x32; /* the same in fp32 */
    int64_t rstd, qkv, scores, gate_up, h, logits;
    bool attends; /* blocks have attention; without it x is x_mid, too */
} tensors;

typedef struct kept { /* of a block, by its forward */
    bool input, norms, product, attention, mlp;
    bool projection; /* of the attention half, what came before attention itself */
} kept;

int64_t memory_tokens(const memory_step *p);
tensors memory_tensors(const memory_step *p);

kept memory_kept_by(const memory_step *p, int64_t block);
/* What a half keeps: without its norm's output, or the product h, where backward makes that again. */
int64_t memory_projection(const tensors *t, bool norm);             /* without x */
int64_t memory_attention_half(const tensors *t, bool norm);         /* with the projection */
int64_t memory_mlp_half(const tensors *t, bool norm, bool product); /* without x_mid */
int64_t memory_kept_bytes(const tensors *t, kept k);

typedef struct walk {
    const memory_step *p;
    tensors t;
    memory_bytes beside;        /* what else is held: parameters, gradients so far, what the side stream still reads */
    memory_bytes *worst;        /* of this phase */
    kept now[RECOMPUTE_LAYERS]; /* of each block: what is held once forward is past it; backward changes it */
    int away[RECOMPUTE_LAYERS]; /* OFFLOAD_... kinds of it that are with the host */
} walk;

/* What blocks 0 to block - 1 have kept, and the host does not have. */
int64_t memory_kept_before(const walk *w, int64_t block);
int64_t memory_kv_width(const transformer_shape *s);
int64_t memory_padded(const memory_step *p, int64_t elements);     /* of a tensor of the index space */
int64_t memory_index_space(const memory_step *p, int64_t *behind); /* elements; `behind` the last tensor, or NULL */

/* While an op runs, so much is held, beside what lies beside. */
void memory_moment(const walk *w, int64_t activation, int64_t temporary, int64_t workspace);
void memory_norm_moment(const walk *w, int64_t activation, int64_t temporary);
/* From the block's input to q, k and v, or on to the attention's output. `held` are the activations before it, the input among them. */
void memory_projection_forward(const walk *w, int64_t held, int64_t temporary);
void memory_attention_half_forward(const walk *w, int64_t held, int64_t temporary);
/* From x_mid, which is in `held`, to h; `keep`: backward wants what is made. */
void memory_mlp_half_forward(const walk *w, int64_t held, int64_t temporary, bool keep);
/* `before`: activations of earlier blocks. `output`: whether the block's own output is made, and not known already. */
void memory_block_forward(const walk *w, int64_t before, kept k, bool output, int64_t temporary);
