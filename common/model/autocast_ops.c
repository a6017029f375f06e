/* SPDX-License-Identifier: MIT */
/* Forward and backward of each op of the autocast engine, as launches of the ops in the table; see autocast.h. */
#include "common/model/autocast_ops.h"

#include "common/core/error.h"

/* ---- memory ---- */

void *autocast_block(autocast *a, size_t bytes, const char *tag)
{
    if (a->status != SB_OK)
        return NULL;
    void *p = memory_alloc(a->mem, bytes, tag);
    if (!p) {
        a->status = SB_NO_MEMORY;
        return NULL;
    }
    a->blocks = xrealloc(a->blocks, (a->blocks_n + 1) * sizeof *a->blocks);
    a->blocks[a->blocks_n++] = p;
    return p;
}

/* ---- launches ---- */

typedef struct operand {
    void *p;
    sb_dtype dtype;
} operand;
static const operand none = {0};

static operand data_of(const autocast_tensor *t)
{
    return (operand){t->data, t->dtype};
}

static operand grad_of(const autocast_tensor *t)
{
    return (operand){t->grad, t->dtype};
}

static void note(autocast *a, sb_status s)
{
    if (a->status == SB_OK)
        a->status = s;
}

/* An elementwise op on (rows, columns), all operands contiguous. */
static void point(autocast *a, sb_point op, int rows, int columns, operand x, operand y, sb_spread spread, float scalar,
                  operand out)
{
    const sb_pointwise p = {.op = op,
                            .dtype_a = x.dtype,
                            .dtype_b = y.dtype,
                            .dtype_out = out.dtype,
                            .rows = rows,
                            .columns = columns,
                            .lda = columns,
                            .ldb = columns,
                            .ld_out = columns,
                            .spread_b = spread,
                            .a = x.p,
                            .b = y.p,
                            .out = out.p,
                            .scalar = scalar};
    if (a->status == SB_OK)
        note(a, a->k->train->pointwise(a->ctx, &p, device_stream(a->dev)));
}

/* `scale` times the sums of (rows, columns), along each row or down each column. */
static void sum(autocast *a, int rows, int columns, operand x, bool over_rows, float scale, operand out)
{
    sb_reduce p = {.dtype = x.dtype,
                   .dtype_out = out.dtype,
                   .rows = rows,
                   .columns = columns,
                   .ld = columns,
                   .over_rows = over_rows,
                   .scale = scale,
                   .x = x.p,
                   .out = out.p};
    p.workspace_bytes = a->k->train->reduce_workspace(a->ctx, &p);
    p.workspace = p.workspace_bytes ? autocast_block(a, p.workspace_bytes, "reduce workspace") : NULL;
    if (a->status == SB_OK)
        note(a, a->k->train->reduce(a->ctx, &p, device_stream(a->dev)));
}

static void product(autocast *a, sb_matmul p)
{
    p.workspace_bytes = a->k->train->matmul_workspace(a->ctx, &p);
    p.workspace = p.workspace_bytes ? autocast_block(a, p.workspace_bytes, "matmul workspace") : NULL;
    if (a->status == SB_OK)
        note(a, a->k->train->matmul(a->ctx, &p, device_stream(a->dev)));
}

static size_t elements(const autocast_tensor *t)
{
    return (size_t)t->rows * (size_t)t->columns;
}

/* New memory like the tensor's own: for a gradient of it, or for what is made on the way. */
static operand like(autocast *a, const autocast_tensor *t)
{
    return (operand){autocast_block(a, elements(t) * (size_t)sb_dtype_bytes(t->dtype), "autocast tensor"), t->dtype};
}

/* A number for each row. */
static operand row_numbers(autocast *a, const autocast_tensor *t)
{
    return (operand){autocast_block(a, (size_t)t->rows * (size_t)sb_dtype_bytes(t->dtype), "autocast rows"), t->dtype};
}

/* Takes over g as the tensor's gradient, or adds it to the one that is there. */
static void grad_add(autocast *a, autocast_tensor *t, operand g)
{
    if (!t->grad)
        t->grad = g.p;
    else
        point(a, SB_POINT_ADD, t->rows, t->columns, grad_of(t), g, SB_SPREAD_FULL, 0, grad_of(t));
}

/* The gradient passes as it is, but for the dtype. */
static void grad_copy(autocast *a, autocast_tensor *to, const autocast_tensor *from)
{
    if (!to->wants_grad)
        return;
    operand g = like(a, to);
    point(a, SB_POINT_COPY, to->rows, to->columns, grad_of(from), none, SB_SPREAD_FULL, 0, g);
    grad_add(a, to, g);
}

/* ---- linear: Y = X W^T ---- */

static void linear_forward(autocast *a, const node *n)
{
    const autocast_tensor *x = n->in[0], *w = n->in[1], *y = n->out;
    product(a, (sb_matmul){.dtype = x->dtype,
                           .dtype_out = y->dtype,
                           .transpose_b = true,
                           .m = x->rows,
                           .n = w->rows,
                           .k = x->columns,
                           .lda = x->columns,
                           .ldb = w->columns,
                           .ldd = y->columns,
                           .a = x->data,
                           .b = w->data,
                           .d = y->data});
}

/* dX = dY W and dW = dY^T X. */
static void linear_backward(autocast *a, const node *n)
{
    autocast_tensor *x = n->in[0], *w = n->in[1], *y = n->out;
    if (x->wants_grad) {
        operand dx = like(a, x);
        product(a, (sb_matmul){.dtype = x->dtype,
                               .dtype_out = x->dtype,
                               .m = y->rows,
                               .n = w->columns,
                               .k = w->rows,
                               .lda = y->columns,
                               .ldb = w->columns,
                               .ldd = x->columns,
                               .a = y->grad,
                               .b = w->data,
                               .d = dx.p});
        grad_add(a, x, dx);
    }
    if (w->wants_grad) {
        operand dw = like(a, w);
        product(a, (sb_matmul){.dtype = w->dtype,
                               .dtype_out = w->dtype,
                               .transpose_a = true,
                               .m = w->rows,
                               .n = w->columns,
                               .k = y->rows,
                               .lda = y->columns,
                               .ldb = x->columns,
                               .ldd = w->columns,
                               .a = y->grad,
                               .b = x->data,
                               .d = dw.p});
        grad_add(a, w, dw);
    }
}

/* ---- layer norm: xhat = (x - mean) rstd, y = xhat weight + bias ---- */

static void layer_norm_forward(autocast *a, node *n)
{
    const autocast_tensor *x = n->in[0], *weight = n->in[1], *bias = n->in[2], *y = n->out;
    const int rows = x->rows, columns = x->columns;
    const float each = 1.0f / (float)columns;
    const operand xhat = like(a, x), square = like(a, x), r = row_numbers(a, x); /* mean, variance, 1 / deviation */
    n->saved[0] = xhat.p;
    n->saved[1] = r.p;
    sum(a, rows, columns, data_of(x), false, each, r);
    point(a, SB_POINT_SUB, rows, columns, data_of(x), r, SB_SPREAD_ROW, 0, xhat);
    point(a, SB_POINT_MUL, rows, columns, xhat, xhat, SB_SPREAD_FULL, 0, square);
    sum(a, rows, columns, square, false, each, r);
    point(a, SB_POINT_SHIFT, 1, rows, r, none, SB_SPREAD_FULL, n->eps, r);
    point(a, SB_POINT_RSQRT, 1, rows, r, none, SB_SPREAD_FULL, 0, r);
    point(a, SB_POINT_MUL, rows, columns, xhat, r, SB_SPREAD_ROW, 0, xhat);
    point(a, SB_POINT_MUL, rows, columns, xhat, data_of(weight), SB_SPREAD_COLUMN, 0, data_of(y));
    point(a, SB_POINT_ADD, rows, columns, data_of(y), data_of(bias), SB_SPREAD_COLUMN, 0, data_of(y));
}

/* With g = dy weight: dx = rstd (g - mean(g) - xhat mean(g xhat)). */
static void layer_norm_dx(autocast *a, const node *n, operand xhat, operand product)
{
    autocast_tensor *x = n->in[0];
    const int rows = x->rows, columns = x->columns;
    const float each = 1.0f / (float)columns;
    const operand g = like(a, x), mean = row_numbers(a, x), rstd = {n->saved[1], x->dtype};
    point(a, SB_POINT_MUL, rows, columns, grad_of(n->out), data_of(n->in[1]), SB_SPREAD_COLUMN, 0, g);
    point(a, SB_POINT_MUL, rows, columns, g, xhat, SB_SPREAD_FULL, 0, product);
    sum(a, rows, columns, product, false, each, mean);
    point(a, SB_POINT_MUL, rows, columns, xhat, mean, SB_SPREAD_ROW, 0, product);
    sum(a, rows, columns, g, false, each, mean);
    point(a, SB_POINT_SUB, rows, columns, g, mean, SB_SPREAD_ROW, 0, g);
    point(a, SB_POINT_SUB, rows, columns, g, product, SB_SPREAD_FULL, 0, g);
    point(a, SB_POINT_MUL, rows, columns, g, rstd, SB_SPREAD_ROW, 0, g);
    grad_add(a, x, g);
}

/* dweight = sum(dy xhat) and dbias = sum(dy) over the rows. */
static void layer_norm_backward(autocast *a, const node *n)
{
    autocast_tensor *x = n->in[0], *weight = n->in[1], *bias = n->in[2];
    const operand dy = grad_of(n->out), xhat = {n->saved[0], x->dtype}, product = like(a, x);
    if (weight->wants_grad) {
        operand g = like(a, weight);
        point(a, SB_POINT_MUL, x->rows, x->columns, dy, xhat, SB_SPREAD_FULL, 0, product);
        sum(a, x->rows, x->columns, product, true, 1, g);
        grad_add(a, weight, g);
    }
    if (bias->wants_grad) {
        operand g = like(a, bias);
        sum(a, x->rows, x->columns, dy, true, 1, g);
        grad_add(a, bias, g);
    }
    if (x->wants_grad)
        layer_norm_dx(a, n, xhat, product);
}

/* ---- cross-entropy ---- */

static void cross_entropy(autocast *a, const node *n, operand logits, bool backward)
{
    const sb_cross_entropy p = {.dtype = logits.dtype,
                                .rows = n->in[0]->rows,
                                .vocab = n->in[0]->columns,
                                .logits = logits.p,
                                .targets = n->targets,
                                .row_loss = autocast_block(a, (size_t)n->in[0]->rows * sizeof(float), "row losses"),
                                .loss = n->out->data,
                                .scale = backward ? n->out->grad : NULL,
                                .backward = backward};
    if (a->status == SB_OK)
        note(a, a->k->train->cross_entropy(a->ctx, &p, device_stream(a->dev)));
}

/* The op turns logits into their gradient in place, so it is given a copy. */
static void cross_entropy_backward(autocast *a, const node *n)
{
    autocast_tensor *logits = n->in[0];
    operand g = like(a, logits);
    point(a, SB_POINT_COPY, logits->rows, logits->columns, data_of(logits), none, SB_SPREAD_FULL, 0, g);
    cross_entropy(a, n, g, true);
    grad_add(a, logits, g);
}

/* ---- dispatch ---- */

bool autocast_forward(autocast *a, node *n)
{
    const autocast_tensor *x = n->in[0], *y = n->out;
    switch (n->op) {
    case NODE_CAST:
        point(a, SB_POINT_COPY, x->rows, x->columns, data_of(x), none, SB_SPREAD_FULL, 0, data_of(y));
        break;
    case NODE_LINEAR: linear_forward(a, n); break;
    case NODE_RELU:
        point(a, SB_POINT_RELU, x->rows, x->columns, data_of(x), none, SB_SPREAD_FULL, 0, data_of(y));
        break;
    case NODE_ADD:
        point(a, SB_POINT_ADD, x->rows, x->columns, data_of(x), data_of(n->in[1]), SB_SPREAD_FULL, 0, data_of(y));
        break;
    case NODE_LAYER_NORM: layer_norm_forward(a, n); break;
    case NODE_CROSS_ENTROPY: cross_entropy(a, n, data_of(x), false); break;
    }
    return a->status == SB_OK;
}

static void relu_backward(autocast *a, const node *n)
{
    autocast_tensor *x = n->in[0];
    operand g = like(a, x);
    point(a, SB_POINT_RELU_GRAD, x->rows, x->columns, data_of(x), grad_of(n->out), SB_SPREAD_FULL, 0, g);
    grad_add(a, x, g);
}

void autocast_node_backward(autocast *a, const node *n)
{
    if (!n->out->wants_grad)
        return;
    switch (n->op) {
    case NODE_CAST: grad_copy(a, n->in[0], n->out); break;
    case NODE_LINEAR: linear_backward(a, n); break;
    case NODE_RELU: relu_backward(a, n); break;
    case NODE_ADD:
        grad_copy(a, n->in[0], n->out);
        grad_copy(a, n->in[1], n->out);
        break;
    case NODE_LAYER_NORM: layer_norm_backward(a, n); break;
    case NODE_CROSS_ENTROPY: cross_entropy_backward(a, n); break;
    }
}
