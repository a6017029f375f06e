/* SPDX-License-Identifier: MIT */
/* What the ways are made of: pieces of tensors, and what is enqueued on them. See case.h. */
#include "bench/cp/case.h"

#include <stdio.h>

/* ---- pieces ---- */

bool cp_tensor_alloc(cp_case *k, cp_tensor *t, int groups, int chunks, int heads, int columns, const char *tag)
{
    *t = (cp_tensor){.heads = heads, .columns = columns};
    t->piece = (size_t)k->rows * (size_t)k->base.batch * (size_t)heads * (size_t)columns;
    const size_t bytes = t->piece * (size_t)groups * (size_t)chunks * k->element;
    t->data = memory_alloc(k->s->mem, bytes, tag);
    if (t->data)
        device_memset(k->s->dev, t->data, 0xff, bytes); /* NaN: what nobody writes can't pass the check */
    return t->data;
}

void *cp_piece(const cp_case *k, const cp_tensor *t, int group, int which)
{
    return t->data + (size_t)(2 * group + which) * t->piece * k->element;
}

void *cp_chunk(const cp_case *k, const cp_tensor *t, int chunk)
{
    return t->data + (size_t)chunk * t->piece * k->element;
}

sb_tensor cp_view(const cp_case *k, const cp_tensor *t, const void *data)
{
    const int64_t row = (int64_t)t->heads * t->columns;
    return (sb_tensor){(void *)data, row, t->columns, row * k->base.batch};
}

float *cp_lse(const cp_case *k, int group, int which)
{
    return k->lse[which] + (size_t)group * (size_t)k->base.batch * (size_t)k->q.heads * (size_t)k->rows;
}

static void note(cp_case *k, sb_status status)
{
    if (status != SB_OK && k->status == SB_OK) {
        k->status = status;
        snprintf(k->why, sizeof k->why, "%s", sb_last_message());
    }
}

static void point(cp_case *k, const sb_pointwise *p)
{
    const attention_context *at = k->s->user;
    note(k, at->kernels->train->pointwise(at->ctx, p, device_stream(k->s->dev)));
}

static sb_dtype stored(sb_dtype t)
{
    return sb_dtype_bytes(t) == 4 ? SB_FP32 : t;
}

void cp_piece_copy(cp_case *k, const cp_tensor *t, void *piece, int group, int which, const sb_tensor *whole,
                   bool to_whole)
{
    const int row = t->heads * t->columns, chunk = context_chunk(&k->shape, k->rank, which), batch = k->base.batch;
    for (int b = 0; b < batch; b++) {
        char *mine = (char *)piece + (size_t)b * (size_t)row * k->element;
        char *place =
            (char *)whole->data +
            (size_t)(b * whole->stride_b + group * row + (int64_t)chunk * k->rows * whole->stride_s) * k->element;
        const int ld_piece = batch * row, ld_whole = (int)whole->stride_s;
        point(k, &(sb_pointwise){.op = SB_POINT_COPY,
                                 .dtype_a = stored(k->base.dtype),
                                 .dtype_out = stored(k->base.dtype),
                                 .rows = k->rows,
                                 .columns = row,
                                 .lda = to_whole ? ld_piece : ld_whole,
                                 .ld_out = to_whole ? ld_whole : ld_piece,
                                 .a = to_whole ? mine : place,
                                 .out = to_whole ? place : mine});
    }
}

/* ---- what a way is made of ---- */

void cp_attend(cp_case *k, sb_attention a, bool backward)
{
    const attention_context *at = k->s->user;
    const sb_attention_op *op = k->whole.op;
    if (k->planning) {
        const size_t need = backward ? op->backward_workspace(at->ctx, &a) : op->forward_workspace(at->ctx, &a);
        note(k, op->supported(at->ctx, &a));
        k->workspace_bytes = need > k->workspace_bytes ? need : k->workspace_bytes;
        return;
    }
    if (!k->computing || k->status != SB_OK)
        return;
    a.workspace = k->workspace;
    a.workspace_bytes = k->workspace_bytes;
    note(k, (backward ? op->backward : op->forward)(at->ctx, &a, device_stream(k->s->dev)));
}

void cp_add(cp_case *k, sb_dtype ta, const void *a, sb_dtype tb, const void *b, sb_dtype t_out, void *out, size_t rows,
            size_t columns)
{
    if (!k->computing || k->status != SB_OK)
        return;
    point(k, &(sb_pointwise){.op = b ? SB_POINT_ADD : SB_POINT_COPY,
                             .dtype_a = stored(ta),
                             .dtype_b = stored(tb),
                             .dtype_out = stored(t_out),
                             .rows = (int)rows,
                             .columns = (int)columns,
                             .lda = (int)columns,
                             .ldb = (int)columns,
                             .ld_out = (int)columns,
                             .spread_b = SB_SPREAD_FULL,
                             .a = a,
                             .b = b,
                             .out = out});
}

void cp_merge(cp_case *k, const sb_attention *a, bool first, const cp_tensor *like, float *o_sum, float *lse_sum)
{
    const attention_context *at = k->s->user;
    if (!k->computing || k->status != SB_OK)
        return;
    const sb_attention_merge m = {.dtype = stored(a->dtype),
                                  .batch = a->batch,
                                  .heads = a->heads,
                                  .seq = a->seq_q,
                                  .columns = a->head_dim,
                                  .first = first,
                                  .o = a->o,
                                  .lse = a->lse,
                                  .o_sum = cp_view(k, like, o_sum),
                                  .lse_sum = lse_sum};
    note(k, at->kernels->train->attention_merge(at->ctx, &m, device_stream(k->s->dev)));
}

void cp_moves_begin(cp_case *k)
{
    if (k->moving)
        comm_group_begin(k->comm);
}

void cp_moves_end(cp_case *k)
{
    if (k->moving)
        comm_group_end(k->comm);
}

void cp_move(cp_case *k, int from, int to, const void *src, void *dst, size_t elements, comm_dtype t)
{
    const size_t bytes = elements * comm_dtype_bytes(t);
    if (!k->moving || (from != k->rank && to != k->rank))
        return;
    if (from == to) {
        device_stream_copy(k->s->dev, k->side, dst, src, bytes);
    } else if (to == k->rank) {
        comm_recv(k->comm, dst, elements, t, from, k->side);
        k->received_bytes += (double)bytes;
    } else {
        comm_send(k->comm, src, elements, t, to, k->side);
    }
}

void cp_record(cp_case *k, void *stream, device_event *e)
{
    if (!k->planning)
        device_stream_record(k->s->dev, stream, e);
}

void cp_wait(cp_case *k, void *stream, device_event *e)
{
    if (!k->planning)
        device_stream_wait(k->s->dev, stream, e);
}

static bool pass(cp_case *k, void (*enqueue)(cp_case *k))
{
    void *main = device_stream(k->s->dev);
    cp_record(k, main, k->begun);
    cp_wait(k, k->side, k->begun);
    enqueue(k);
    return k->status == SB_OK;
}

bool cp_forward(cp_case *k)
{
    return pass(k, k->way->forward);
}

bool cp_backward(cp_case *k)
{
    return pass(k, k->way->backward);
}
