/* SPDX-License-Identifier: MIT */
/* The step whose memory is predicted, and bytes by what holds them; see memory.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/formulas/model.h"
#include "common/formulas/recompute.h"

typedef struct memory_bytes {
    int64_t param, master, moment1, moment2, grad;
    int64_t activation; /* made by forward, or again by backward, for backward */
    int64_t temporary;  /* gradients of activations, and what lives within one op's pieces */
    int64_t workspace, other;
} memory_bytes;
int64_t memory_total(const memory_bytes *b);

typedef enum memory_product {
    PRODUCT_QKV,
    PRODUCT_O,
    PRODUCT_GATE_UP,
    PRODUCT_W2,
    PRODUCT_HEAD,
    PRODUCT_HEAD_REST, /* with the loss in chunks: the last chunk, where it is smaller */
    MEMORY_PRODUCTS
} memory_product;

/* What ops want beside their operands. It depends on kernels and libraries, so the caller asks those. */
typedef struct memory_scratch {
    int64_t forward[MEMORY_PRODUCTS], dx[MEMORY_PRODUCTS], dw[MEMORY_PRODUCTS]; /* of matrix products */
    int64_t attention_saved; /* kept from forward to backward beside the log-sum-exp */
    int64_t attention_forward, attention_backward;
    int64_t norm_backward, embedding_backward;
    int64_t grad_stats;            /* 0 where gradients are neither clipped nor scaled */
    int64_t row_sums, column_sums; /* of (T, d), in an eager step */
    int64_t mean_loss;             /* of the loss in chunks */
} memory_scratch;

typedef struct memory_step {
    transformer_shape shape;
    int64_t activation_bytes, param_bytes, master_bytes, grad_bytes, moment_bytes; /* of one element; 0: not there */
    int64_t alignment;      /* elements at whose multiples parameters and their gradients start */
    int64_t granularity;    /* the index space is a multiple of this many elements; 0: of the alignment */
    int64_t state_elements; /* of master weights and moments that are held here; 0: all */
    int64_t state_bytes;    /* of the optimizer's own record */
    bool backward, update;  /* else the step is forward alone, or ends after backward */
    bool eager;             /* norms, SwiGLU and additions by one pass an operation, with their intermediate tensors */
    bool overlap;           /* weight gradients on a stream of their own, up to two blocks late; not with eager */
    bool swiglu_matmul;     /* SwiGLU within its products: h has no gradient; gate, up only where backward wants them */
    int64_t loss_chunk;     /* tokens whose logits exist at once, in backward; 0: all, from forward on */
    bool share_grad_memory; /* gradients count from when they are written; false: always */
    recompute_schedule schedule; /* of shape.layers blocks */
    memory_scratch scratch;
} memory_step;
