/* SPDX-License-Identifier: MIT */
/* Rows of a table by id. Backward adds up the rows of d_out that came from one row of the table, in the order of the
 * tokens: the workspace chains the tokens of each id, so that every row of d_table is summed in double and written
 * once. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train.h"
#include "kernels/shared/train_check.h"

#include <string.h>

/* The row of the table, or -1: it is not in this slice. */
static int32_t row_of(const sb_embedding *p, int r)
{
    const int64_t row = (int64_t)p->ids[r] - (p->slice ? p->first_id : 0);
    return row >= 0 && row < p->vocab ? (int32_t)row : -1;
}

static sb_status ids_check(const sb_embedding *p)
{
    for (int r = 0; r < p->rows && !p->slice; r++)
        if (p->ids[r] < 0 || p->ids[r] >= p->vocab)
            return sb_error(SB_INVALID, "embedding: id %d of row %d is not in [0, %d)", (int)p->ids[r], r, p->vocab);
    return SB_OK;
}

sb_status cpu_embedding_forward(sb_context *ctx, const sb_embedding *p, void *stream)
{
    (void)ctx, (void)stream;
    SB_TRY(sb_embedding_check(p, false));
    SB_TRY(ids_check(p));
    const size_t row_bytes = (size_t)p->d * sb_dtype_bytes(p->dtype);
    for (int r = 0; r < p->rows; r++) {
        const int32_t row = row_of(p, r);
        if (row < 0)
            memset((char *)p->out + r * row_bytes, 0, row_bytes);
        else
            memcpy((char *)p->out + r * row_bytes, (const char *)p->table + row * row_bytes, row_bytes);
    }
    return SB_OK;
}

size_t cpu_embedding_workspace(sb_context *ctx, const sb_embedding *p)
{
    (void)ctx;
    return p->vocab < 1 || p->rows < 1 ? 0 : ((size_t)p->vocab + p->rows) * sizeof(int32_t);
}

/* first[id] is the first token with that id, next[r] the one after token r; -1 ends a chain. */
static void chain_tokens(const sb_embedding *p, int32_t *first, int32_t *next)
{
    for (int id = 0; id < p->vocab; id++)
        first[id] = -1;
    for (int r = p->rows - 1; r >= 0; r--) {
        const int32_t row = row_of(p, r);
        if (row < 0)
            continue;
        next[r] = first[row];
        first[row] = r;
    }
}

static void sum_chain(const sb_embedding *p, int id, int32_t first, const int32_t *next)
{
    for (int j = 0, n; j < p->d; j += n) {
        double sum[CPU_BLOCK] = {0};
        float x[CPU_BLOCK];
        n = cpu_block(j, p->d);
        for (int32_t r = first; r >= 0; r = next[r]) {
            cpu_read(p->dtype, x, p->d_out, (size_t)r * p->d + j, n);
            for (int i = 0; i < n; i++)
                sum[i] += x[i];
        }
        if (p->accumulate) {
            cpu_read(p->dtype_grad, x, p->d_table, (size_t)id * p->d + j, n);
            for (int i = 0; i < n; i++)
                sum[i] += x[i];
        }
        for (int i = 0; i < n; i++)
            x[i] = (float)sum[i];
        cpu_write(p->dtype_grad, p->d_table, (size_t)id * p->d + j, x, n);
    }
}

sb_status cpu_embedding_backward(sb_context *ctx, const sb_embedding *p, void *stream)
{
    (void)stream;
    SB_TRY(sb_embedding_check(p, true));
    SB_TRY(sb_train_workspace_check("embedding_backward", p->workspace, p->workspace_bytes,
                                    cpu_embedding_workspace(ctx, p)));
    SB_TRY(ids_check(p));
    int32_t *first = p->workspace, *next = first + p->vocab;
    chain_tokens(p, first, next);
    for (int id = 0; id < p->vocab; id++)
        if (first[id] >= 0 || !p->accumulate)
            sum_chain(p, id, first[id], next);
    return SB_OK;
}
