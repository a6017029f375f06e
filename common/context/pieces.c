/* SPDX-License-Identifier: MIT */
/* What the ways are made of: pieces of tensors, and what is enqueued on them; see internal.h. */
#include "common/context/internal.h"

#include <stdio.h>

/* ---- pieces ---- */

void *carve(context *k, size_t bytes)
{
    char *at = k->carved;
    k->carved += context_aligned(bytes);
    return at;
}

static int heads_of(const context *k, bool keys)
{
    return keys ? k->heads_kv : k->heads;
}

pieces pieces_carve(context *k, bool keys, int count)
{
    const size_t piece = keys ? k->k_piece : k->q_piece;
    return (pieces){carve(k, (size_t)count * piece * k->element), heads_of(k, keys), piece};
}

void *pieces_at(const context *k, const pieces *t, int chunk)
{
    return t->data + (size_t)chunk * t->piece * k->element;
}

sb_tensor pieces_view(const context *k, const pieces *t, const void *data)
{
    const int64_t row = (int64_t)t->heads * k->head_dim;
    return (sb_tensor){(void *)data, row, k->head_dim, row * k->as.whole.batch};
}

void *context_piece(const context *k, const context_tensor *t, int group, int which)
{
    const int64_t elements = group * t->group + which * t->which;
    return t->data ? (char *)t->data + elements * (int64_t)k->element : NULL;
}

sb_tensor chunk_view(const context *k, const context_tensor *t, int group, int which)
{
    return (sb_tensor){context_piece(k, t, group, which), t->b, k->head_dim, t->s};
}

float *context_lse(const context *k, int group, int which)
{
    const size_t call = (size_t)k->as.whole.batch * (size_t)k->heads * (size_t)k->rows;
    return k->now.lse ? k->now.lse + (size_t)(which * k->groups + group) * call : NULL;
}

float *context_lse_heads(const context *k, int turn)
{
    const size_t call = (size_t)k->as.whole.batch * (size_t)k->heads * (size_t)k->as.shape.seq;
    return k->now.lse ? k->now.lse + (size_t)turn * call : NULL;
}

/* ---- launches ---- */

static void note(context *k, sb_status status)
{
    if (status != SB_OK && k->status == SB_OK) {
        k->status = status;
        snprintf(k->why, sizeof k->why, "%s", sb_last_message());
    }
}

static bool launching(const context *k)
{
    return !k->planning && k->computing && k->status == SB_OK;
}

void context_attend(context *k, sb_attention a, bool backward)
{
    const sb_attention_op *op = k->as.op;
    sb_context *ctx = k->as.ctx;
    if (k->planning) {
        const size_t need = backward ? op->backward_workspace(ctx, &a) : op->forward_workspace(ctx, &a);
        note(k, op->supported(ctx, &a));
        size_t *most = &k->op_workspace[backward];
        *most = need > *most ? need : *most;
    }
    if (!launching(k))
        return;
    a.workspace = k->now.workspace;
    a.workspace_bytes = k->op_workspace[backward];
    note(k, (backward ? op->backward : op->forward)(ctx, &a, k->main));
}

static sb_dtype stored(sb_dtype t)
{
    return sb_dtype_bytes(t) == 4 ? SB_FP32 : t;
}

void context_add(context *k, context_operand a, context_operand b, context_operand out, size_t rows, size_t columns)
{
    if (!launching(k))
        return;
    const sb_pointwise p = {.op = b.data ? SB_POINT_ADD : SB_POINT_COPY,
                            .dtype_a = stored(a.dtype),
                            .dtype_b = stored(b.dtype),
                            .dtype_out = stored(out.dtype),
                            .rows = (int)rows,
                            .columns = (int)columns,
                            .lda = (int)a.ld,
                            .ldb = (int)b.ld,
                            .ld_out = (int)out.ld,
                            .spread_b = SB_SPREAD_FULL,
                            .a = a.data,
                            .b = b.data,
                            .out = (void *)out.data};
    note(k, k->as.kernels->train->pointwise(k->as.ctx, &p, k->main));
}

context_operand dense(const context *k, bool fp32, const void *data, bool keys)
{
    const int64_t row = (int64_t)heads_of(k, keys) * k->head_dim;
    return (context_operand){fp32 ? SB_FP32 : k->as.whole.dtype, data, row * k->as.whole.batch};
}

static context_operand of_sequence(context_operand x, int64_t elements)
{
    if (x.data)
        x.data = (const char *)x.data + elements * sb_dtype_bytes(x.dtype);
    return x;
}

void chunk_put(context *k, const context_tensor *t, bool keys, int group, int which, context_operand a,
               context_operand b)
{
    const int64_t row = (int64_t)heads_of(k, keys) * k->head_dim;
    const context_operand out = {k->as.whole.dtype, context_piece(k, t, group, which), t->s};
    const int batch = k->as.pieces ? 1 : k->as.whole.batch;
    const int64_t columns = batch == 1 ? row * k->as.whole.batch : row;
    for (int i = 0; i < batch; i++)
        context_add(k, of_sequence(a, i * row), of_sequence(b, i * row), of_sequence(out, i * t->b), (size_t)k->rows,
                    (size_t)columns);
}

void chunk_take(context *k, const context_tensor *t, bool keys, int group, int which, void *piece)
{
    const int64_t row = (int64_t)heads_of(k, keys) * k->head_dim;
    const context_operand from = {k->as.whole.dtype, context_piece(k, t, group, which), t->s};
    const context_operand to = dense(k, false, piece, keys);
    for (int i = 0; i < k->as.whole.batch; i++)
        context_add(k, of_sequence(from, i * t->b), (context_operand){.data = NULL}, of_sequence(to, i * row),
                    (size_t)k->rows, (size_t)row);
}

void merge(context *k, const sb_attention *a, bool first, float *o_sum, float *lse_sum)
{
    if (!launching(k))
        return;
    const int64_t row = (int64_t)k->heads * k->head_dim;
    const sb_attention_merge m = {.dtype = stored(a->dtype),
                                  .batch = a->batch,
                                  .heads = a->heads,
                                  .seq = a->seq_q,
                                  .columns = a->head_dim,
                                  .first = first,
                                  .o = a->o,
                                  .lse = a->lse,
                                  .o_sum = {o_sum, row, k->head_dim, row * a->batch},
                                  .lse_sum = lse_sum};
    note(k, k->as.kernels->train->attention_merge(k->as.ctx, &m, k->main));
}

/* ---- order ---- */

void record(context *k, void *stream, device_event *e)
{
    if (!k->planning)
        device_stream_record(k->as.d, stream, e);
}

void await(context *k, void *stream, device_event *e)
{
    if (!k->planning)
        device_stream_wait(k->as.d, stream, e);
}

bool breaks(const context *k, context_fault f)
{
    return k->as.fault == f && k->rank == k->as.shape.ranks - 1;
}
