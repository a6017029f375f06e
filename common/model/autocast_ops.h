/* SPDX-License-Identifier: MIT */
/* The ops of the autocast engine, and its state; for autocast.c alone. */
#ifndef STEPBENCH_MODEL_AUTOCAST_OPS_H
#define STEPBENCH_MODEL_AUTOCAST_OPS_H

#include "common/model/autocast.h"

enum { NODE_INPUTS = 3 };
typedef enum node_op { NODE_CAST, NODE_LINEAR, NODE_RELU, NODE_ADD, NODE_LAYER_NORM, NODE_CROSS_ENTROPY } node_op;

typedef struct node { /* an op that ran, with its inputs as they were cast */
    node_op op;
    autocast_tensor *in[NODE_INPUTS], *out;
    float eps;
    void *saved[2];   /* layer_norm: the normalized rows (rows, columns) and 1 / deviation (rows) */
    int32_t *targets; /* cross_entropy: (rows), device memory */
} node;

struct autocast {
    device *dev;
    memory *mem;
    const sb_kernels *k;
    sb_context *ctx;
    sb_dtype low;
    sb_status status;
    void **blocks; /* all device memory of the engine */
    size_t blocks_n;
    autocast_tensor **tensors;
    size_t tensors_n;
    node *nodes;
    size_t nodes_n;
};

void *autocast_block(autocast *a, size_t bytes, const char *tag); /* NULL after setting the status */

/* Fills n->out from n->in. False when an op failed. */
bool autocast_forward(autocast *a, node *n);
/* Adds to the gradients of n->in that are wanted, from n->out->grad. */
void autocast_node_backward(autocast *a, const node *n);

#endif
