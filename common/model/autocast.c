/* SPDX-License-Identifier: MIT */
/* The engine: tensors, the choice of dtypes, the tape and its way back; see autocast.h. What each op computes is in
 * autocast_ops.c. */
#include "common/model/autocast_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/model/dtypes.h"

const autocast_rule autocast_rules[] = {{"linear", AUTOCAST_LOW},         {"layer_norm", AUTOCAST_FP32},
                                        {"cross_entropy", AUTOCAST_FP32}, {"add", AUTOCAST_WIDEST},
                                        {"relu", AUTOCAST_FOLLOW},        {0}};

static autocast_kind kind_of(const char *op)
{
    for (const autocast_rule *r = autocast_rules; r->op; r++)
        if (strcmp(r->op, op) == 0)
            return r->kind;
    die(EXIT_CODE_FAILURE, "bug: autocast has no rule for %s", op);
}

/* ---- memory and failures ---- */

autocast *autocast_create(device *d, memory *m, const sb_kernels *k, sb_context *ctx, sb_dtype low)
{
    autocast *a = xcalloc(1, sizeof *a);
    *a = (autocast){.dev = d, .mem = m, .k = k, .ctx = ctx, .low = low};
    return a;
}

void autocast_free(autocast *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < a->blocks_n; i++)
        memory_release(a->mem, a->blocks[i]);
    for (size_t i = 0; i < a->tensors_n; i++)
        free(a->tensors[i]);
    free(a->blocks);
    free(a->tensors);
    free(a->nodes);
    free(a);
}

sb_status autocast_status(const autocast *a)
{
    return a->status;
}

static size_t bytes_of(const autocast_tensor *t)
{
    return (size_t)t->rows * (size_t)t->columns * (size_t)sb_dtype_bytes(t->dtype);
}

static autocast_tensor *tensor_new(autocast *a, const char *name, sb_dtype dtype, int rows, int columns,
                                   bool wants_grad)
{
    autocast_tensor *t = xcalloc(1, sizeof *t);
    *t = (autocast_tensor){.dtype = dtype, .rows = rows, .columns = columns, .wants_grad = wants_grad};
    snprintf(t->name, sizeof t->name, "%s", name);
    a->tensors = xrealloc(a->tensors, (a->tensors_n + 1) * sizeof *a->tensors);
    a->tensors[a->tensors_n++] = t; /* also when there is no memory for it: autocast_free finds it */
    t->data = autocast_block(a, bytes_of(t), "autocast tensor");
    return t->data ? t : NULL;
}

size_t autocast_tensors(const autocast *a, autocast_tensor *const **out)
{
    *out = a->tensors;
    return a->tensors_n;
}

static autocast_tensor *from_host(autocast *a, const char *name, int rows, int columns, const float *values,
                                  bool parameter)
{
    autocast_tensor *t = tensor_new(a, name, SB_FP32, rows, columns, parameter);
    if (!t)
        return NULL;
    t->parameter = parameter;
    device_upload(a->dev, t->data, values, bytes_of(t));
    return t;
}

autocast_tensor *autocast_parameter(autocast *a, const char *name, int rows, int columns, const float *values)
{
    return from_host(a, name, rows, columns, values, true);
}

autocast_tensor *autocast_input(autocast *a, const char *name, int rows, int columns, const float *values)
{
    return from_host(a, name, rows, columns, values, false);
}

static void read_floats(autocast *a, const autocast_tensor *t, const void *from, float *out)
{
    void *raw = xmalloc(bytes_of(t));
    device_download(a->dev, raw, from, bytes_of(t));
    dtype_load(t->dtype, out, raw, (size_t)t->rows * (size_t)t->columns);
    free(raw);
}

void autocast_read(autocast *a, const autocast_tensor *t, float *out)
{
    read_floats(a, t, t->data, out);
}

void autocast_read_grad(autocast *a, const autocast_tensor *t, float *out)
{
    read_floats(a, t, t->grad, out);
}

/* ---- the tape ---- */

static void record(autocast *a, node n)
{
    a->nodes = xrealloc(a->nodes, (a->nodes_n + 1) * sizeof *a->nodes);
    a->nodes[a->nodes_n++] = n;
}

/* The tensor itself where it has the dtype already, else its cast. */
static autocast_tensor *as(autocast *a, autocast_tensor *t, sb_dtype dtype)
{
    if (!t || t->dtype == dtype)
        return t;
    for (size_t i = 0; t->parameter && i < a->nodes_n; i++)
        if (a->nodes[i].op == NODE_CAST && a->nodes[i].in[0] == t && a->nodes[i].out->dtype == dtype)
            return a->nodes[i].out;
    char name[sizeof t->name + 16];
    snprintf(name, sizeof name, "%s as %s", t->name, dtype_name(dtype));
    node n = {.op = NODE_CAST, .in = {t}};
    n.out = tensor_new(a, name, dtype, t->rows, t->columns, t->wants_grad);
    if (!n.out || !autocast_forward(a, &n))
        return NULL;
    record(a, n);
    return n.out;
}

/* Casts the inputs as the op's rule says; false when an input is missing. */
static bool cast_inputs(autocast *a, const char *op, node *n)
{
    sb_dtype dtype = SB_BF16;
    bool fp32 = false, mixed = false;
    for (int i = 0; i < NODE_INPUTS && n->in[i]; i++) {
        fp32 = fp32 || n->in[i]->dtype == SB_FP32;
        mixed = mixed || n->in[i]->dtype != n->in[0]->dtype;
    }
    if (a->status != SB_OK || !n->in[0])
        return false;
    autocast_kind kind = a->low == SB_FP32 ? AUTOCAST_FOLLOW : kind_of(op);
    switch (kind) {
    case AUTOCAST_LOW: dtype = a->low; break;
    case AUTOCAST_FP32: dtype = SB_FP32; break;
    case AUTOCAST_WIDEST:
        dtype = fp32 || mixed ? SB_FP32 : n->in[0]->dtype;
        break; /* fp16 with bf16: fp32 holds both */
    case AUTOCAST_FOLLOW: dtype = n->in[0]->dtype; break;
    }
    for (int i = 0; i < NODE_INPUTS && n->in[i]; i++)
        n->in[i] = as(a, n->in[i], dtype);
    return a->status == SB_OK;
}

/* Makes the output in `dtype`, runs the op and puts it on the tape. */
static autocast_tensor *run(autocast *a, const char *name, node n, sb_dtype dtype, int rows, int columns)
{
    bool wants_grad = false;
    for (int i = 0; i < NODE_INPUTS && n.in[i]; i++)
        wants_grad = wants_grad || n.in[i]->wants_grad;
    n.out = tensor_new(a, name, dtype, rows, columns, wants_grad);
    if (!n.out || !autocast_forward(a, &n))
        return NULL;
    record(a, n);
    return n.out;
}

autocast_tensor *autocast_linear(autocast *a, const char *name, autocast_tensor *x, autocast_tensor *weight)
{
    node n = {.op = NODE_LINEAR, .in = {x, weight}};
    return cast_inputs(a, "linear", &n) ? run(a, name, n, n.in[0]->dtype, x->rows, weight->rows) : NULL;
}

autocast_tensor *autocast_relu(autocast *a, const char *name, autocast_tensor *x)
{
    node n = {.op = NODE_RELU, .in = {x}};
    return cast_inputs(a, "relu", &n) ? run(a, name, n, n.in[0]->dtype, x->rows, x->columns) : NULL;
}

autocast_tensor *autocast_add(autocast *a, const char *name, autocast_tensor *x, autocast_tensor *y)
{
    node n = {.op = NODE_ADD, .in = {x, y}};
    return cast_inputs(a, "add", &n) ? run(a, name, n, n.in[0]->dtype, x->rows, x->columns) : NULL;
}

autocast_tensor *autocast_layer_norm(autocast *a, const char *name, autocast_tensor *x, autocast_tensor *weight,
                                     autocast_tensor *bias, float eps)
{
    node n = {.op = NODE_LAYER_NORM, .in = {x, weight, bias}, .eps = eps};
    return cast_inputs(a, "layer_norm", &n) ? run(a, name, n, n.in[0]->dtype, x->rows, x->columns) : NULL;
}

autocast_tensor *autocast_cross_entropy(autocast *a, const char *name, autocast_tensor *logits, const int32_t *targets)
{
    node n = {.op = NODE_CROSS_ENTROPY, .in = {logits}};
    if (!cast_inputs(a, "cross_entropy", &n))
        return NULL;
    size_t bytes = (size_t)logits->rows * sizeof *targets;
    n.targets = autocast_block(a, bytes, "targets");
    if (!n.targets)
        return NULL;
    device_upload(a->dev, n.targets, targets, bytes);
    return run(a, name, n, SB_FP32, 1, 1);
}

bool autocast_backward(autocast *a, autocast_tensor *loss, float scale)
{
    if (!loss || a->status != SB_OK)
        return false;
    loss->grad = autocast_block(a, bytes_of(loss), "gradient");
    if (!loss->grad)
        return false;
    device_upload(a->dev, loss->grad, &scale, sizeof scale);
    for (size_t i = a->nodes_n; i-- > 0 && a->status == SB_OK;)
        if (a->nodes[i].out->grad) /* else the loss does not depend on it */
            autocast_node_backward(a, &a->nodes[i]);
    return a->status == SB_OK;
}
