/* SPDX-License-Identifier: MIT */
/* See attention_problem.h. */
#include "tests/support/attention_problem.h"

#include "common/core/numeric.h"
#include "common/core/rng.h"
#include "kernels/shared/internal.h"
#include "tests/support/test.h"

enum { GUARD_BYTES = 256, GUARD = 0xa5, POISON = 0xff /* NaN in every dtype */ };

static const char *const dtype_names[] = {"bf16", "fp16", "tf32", "fp32", "bf16x3"};
static const char *const tensor_names[] = {"q", "k", "v", "d_o", "o", "dq", "dk", "dv"};

static bool is_output(int tensor)
{
    return tensor >= OUTPUT_O;
}

static bool has_value_columns(int tensor)
{
    return tensor == INPUT_V || tensor == INPUT_D_O || tensor == OUTPUT_O || tensor == OUTPUT_DV;
}

static void create_tensor(problem *p, int id, sb_tensor *view, int heads, int rows, problem_layout layout)
{
    problem_tensor *t = &p->tensor[id];
    const int64_t d = has_value_columns(id) ? sb_head_dim_v(&p->a) : p->a.head_dim,
                  pad = layout == LAYOUT_PADDED ? 8 : 0;
    t->view = view;
    t->heads = heads;
    t->rows = rows;
    t->columns = (int)d;
    t->count = (size_t)p->a.batch * heads * rows * d;
    t->values = xcalloc(t->count, sizeof(double));
    if (is_output(id))
        p->expected[id] = xcalloc(t->count, sizeof(double));
    if (layout == LAYOUT_BSHD) {
        view->stride_h = d;
        view->stride_s = heads * d;
        view->stride_b = rows * view->stride_s;
    } else {
        view->stride_s = d + pad;
        view->stride_h = rows * view->stride_s + 2 * pad;
        view->stride_b = heads * view->stride_h + 3 * pad;
    }
    t->buffer_bytes = (size_t)p->a.batch * view->stride_b * sb_dtype_bytes(p->a.dtype) + 2 * GUARD_BYTES;
    t->bytes = xmalloc(t->buffer_bytes);
    t->before = xmalloc(t->buffer_bytes);
    memset(t->bytes, GUARD, t->buffer_bytes);
    view->data = t->bytes + GUARD_BYTES;
}

/* Row `row` of the (B, heads, rows) rows of a tensor, inside `buffer` (its bytes, or the copy of them). */
static void *row_in(const problem *p, const problem_tensor *t, unsigned char *buffer, size_t row)
{
    size_t s = row % t->rows, h = row / t->rows % t->heads, b = row / t->rows / t->heads;
    int64_t element = b * t->view->stride_b + h * t->view->stride_h + s * t->view->stride_s;
    return buffer + GUARD_BYTES + element * sb_dtype_bytes(p->a.dtype);
}

static size_t row_count(const problem_tensor *t)
{
    return t->count / t->columns;
}

static void read_values(const problem *p, problem_tensor *t)
{
    for (size_t row = 0; row < row_count(t); row++) {
        const uint16_t *half = row_in(p, t, t->bytes, row);
        const float *single = (const float *)half;
        for (int i = 0; i < t->columns; i++)
            t->values[row * t->columns + i] = p->a.dtype == SB_BF16   ? bf16_to_float(half[i])
                                              : p->a.dtype == SB_FP16 ? fp16_to_float(half[i])
                                                                      : single[i];
    }
}

void problem_set(problem *p, int tensor, const float *values)
{
    problem_tensor *t = &p->tensor[tensor];
    for (size_t row = 0; row < row_count(t); row++) {
        uint16_t *half = row_in(p, t, t->bytes, row);
        float *single = (float *)half;
        for (int i = 0; i < t->columns; i++) {
            float x = values[row * t->columns + i];
            if (p->a.dtype == SB_BF16)
                half[i] = bf16_from_float(x);
            else if (p->a.dtype == SB_FP16)
                half[i] = fp16_from_float(x);
            else
                single[i] = x;
        }
    }
    read_values(p, t);
}

problem *problem_create(const sb_attention *shape, problem_layout layout, uint64_t seed)
{
    problem *p = xcalloc(1, sizeof *p);
    sb_attention *a = &p->a;
    *a = *shape;
    snprintf(p->name, sizeof p->name,
             "B=%d H=%d Hkv=%d Sq=%d Sk=%d D=%d/%d %s %s window=%d,%d scale=%g layout=%d seed=%llu", a->batch, a->heads,
             a->heads_kv, a->seq_q, a->seq_k, a->head_dim, sb_head_dim_v(a), dtype_names[a->dtype],
             a->causal ? "causal" : "full", a->windowed ? a->window_left : -1, a->windowed ? a->window_right : -1,
             a->scale, layout, (unsigned long long)seed);
    create_tensor(p, INPUT_Q, &a->q, a->heads, a->seq_q, layout);
    create_tensor(p, INPUT_K, &a->k, a->heads_kv, a->seq_k, layout);
    create_tensor(p, INPUT_V, &a->v, a->heads_kv, a->seq_k, layout);
    create_tensor(p, INPUT_D_O, &a->d_o, a->heads, a->seq_q, layout);
    create_tensor(p, OUTPUT_O, &a->o, a->heads, a->seq_q, layout);
    create_tensor(p, OUTPUT_DQ, &a->dq, a->heads, a->seq_q, layout);
    create_tensor(p, OUTPUT_DK, &a->dk, a->heads_kv, a->seq_k, layout);
    create_tensor(p, OUTPUT_DV, &a->dv, a->heads_kv, a->seq_k, layout);
    p->lse_count = (size_t)a->batch * a->heads * a->seq_q;
    p->lse = xcalloc(p->lse_count, sizeof(double));
    p->expected_lse = xcalloc(p->lse_count, sizeof(double));
    for (int id = INPUT_Q; id <= INPUT_D_O; id++) {
        OWNED float *values = xmalloc(p->tensor[id].count * sizeof *values);
        rng_normal(values, p->tensor[id].count, seed, (uint32_t)id, 0, 1);
        problem_set(p, id, values);
    }
    return p;
}

void problem_free(problem *p)
{
    for (int id = 0; id < TENSOR_COUNT; id++) {
        free(p->tensor[id].bytes);
        free(p->tensor[id].before);
        free(p->tensor[id].values);
        free(p->expected[id]);
    }
    free(p->lse);
    free(p->expected_lse);
    free(p);
}

static sb_context *new_context(void)
{
    sb_context *ctx = NULL;
    assert_int_equal(sb_kernels_cpu()->create(0, &ctx), SB_OK);
    return ctx;
}

/* All rows (B*heads, rows) in order, for the reference's row lists. */
static void list_rows(int heads, int rows, int **head, int **row)
{
    *head = xmalloc((size_t)heads * rows * sizeof **head);
    *row = xmalloc((size_t)heads * rows * sizeof **row);
    for (int i = 0; i < heads * rows; i++) {
        (*head)[i] = i / rows;
        (*row)[i] = i % rows;
    }
}

void problem_reference(problem *p)
{
    const sb_kernels *cpu = sb_kernels_cpu();
    sb_context *ctx = new_context();
    int *bh, *q_row, *bh_kv, *k_row;
    list_rows(p->a.batch * p->a.heads, p->a.seq_q, &bh, &q_row);
    list_rows(p->a.batch * p->a.heads_kv, p->a.seq_k, &bh_kv, &k_row);
    p->a.workspace_bytes = cpu->reference_workspace(ctx, &p->a, true);
    p->a.workspace = xmalloc(p->a.workspace_bytes);

    sb_attention_rows queries = {.n = (int)p->lse_count,
                                 .bh = bh,
                                 .q_row = q_row,
                                 .o = p->expected[OUTPUT_O],
                                 .dq = p->expected[OUTPUT_DQ],
                                 .lse = p->expected_lse};
    sb_attention_rows keys = {.n = p->a.batch * p->a.heads_kv * p->a.seq_k,
                              .bh_kv = bh_kv,
                              .k_row = k_row,
                              .dk = p->expected[OUTPUT_DK],
                              .dv = p->expected[OUTPUT_DV]};
    assert_int_equal(cpu->reference(ctx, &p->a, &queries, NULL), SB_OK);
    assert_int_equal(cpu->reference(ctx, &p->a, &keys, NULL), SB_OK);

    free(p->a.workspace);
    free(bh);
    free(q_row);
    free(bh_kv);
    free(k_row);
    cpu->destroy(ctx);
}

/* A buffer for n bytes, poisoned, with a guard behind it. */
static unsigned char *guarded(size_t n)
{
    unsigned char *buffer = xmalloc(n + GUARD_BYTES);
    memset(buffer, POISON, n);
    memset(buffer + n, GUARD, GUARD_BYTES);
    return buffer;
}

static void free_guarded(const problem *p, const char *op, const char *what, unsigned char *buffer, size_t n)
{
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (buffer[n + i] != GUARD)
            fail_msg("%s, %s: %s was written %zu bytes past its end", op, p->name, what, i);
    free(buffer);
}

static void call(problem *p, const char *op, const char *pass, size_t workspace_bytes, sb_context *ctx,
                 sb_status (*run)(sb_context *, const sb_attention *, void *))
{
    unsigned char *workspace = guarded(workspace_bytes);
    p->a.workspace = workspace;
    p->a.workspace_bytes = workspace_bytes;
    sb_status status = run(ctx, &p->a, NULL);
    if (status != SB_OK)
        fail_msg("%s %s, %s: %s, %s", op, pass, p->name, sb_status_name(status), sb_last_message());
    free_guarded(p, op, "the workspace", workspace, workspace_bytes);
}

/* Inputs must not have changed; of outputs only the elements may have, which are blanked before comparing. */
static void check_surroundings(problem *p, const char *op)
{
    for (int id = 0; id < TENSOR_COUNT; id++) {
        problem_tensor *t = &p->tensor[id];
        if (is_output(id)) {
            read_values(p, t);
            size_t row_bytes = (size_t)t->columns * sb_dtype_bytes(p->a.dtype);
            for (size_t row = 0; row < row_count(t); row++) {
                memset(row_in(p, t, t->bytes, row), 0, row_bytes);
                memset(row_in(p, t, t->before, row), 0, row_bytes);
            }
        }
        if (memcmp(t->bytes, t->before, t->buffer_bytes) != 0)
            fail_msg("%s, %s: %s", op, p->name,
                     is_output(id) ? "bytes around an output were written" : "an input was written");
    }
}

void problem_run(problem *p, const sb_attention_op *op)
{
    sb_context *ctx = new_context();
    for (int id = 0; id < TENSOR_COUNT; id++) {
        problem_tensor *t = &p->tensor[id];
        for (size_t row = 0; is_output(id) && row < row_count(t); row++)
            memset(row_in(p, t, t->bytes, row), POISON, (size_t)t->columns * sb_dtype_bytes(p->a.dtype));
        memcpy(t->before, t->bytes, t->buffer_bytes);
    }
    size_t saved_bytes = op->saved_bytes(ctx, &p->a), lse_bytes = p->lse_count * sizeof(float);
    unsigned char *saved = guarded(saved_bytes), *lse = guarded(lse_bytes);
    p->a.saved = saved;
    p->a.lse = (float *)lse;

    call(p, op->name, "forward", op->forward_workspace(ctx, &p->a), ctx, op->forward);
    call(p, op->name, "backward", op->backward_workspace(ctx, &p->a), ctx, op->backward);

    check_surroundings(p, op->name);
    for (size_t i = 0; i < p->lse_count; i++)
        p->lse[i] = p->a.lse[i];
    free_guarded(p, op->name, "`saved`", saved, saved_bytes);
    free_guarded(p, op->name, "lse", lse, lse_bytes);
    p->a.saved = p->a.lse = p->a.workspace = NULL;
    sb_kernels_cpu()->destroy(ctx);
}

void expect_close(const double *expected, const double *got, size_t n, size_t row, check_bound bound, const char *what,
                  const char *where)
{
    char text[256];
    check_result r = check_compare(expected, got, n, row, bound);
    if (r.ok)
        return;
    check_describe(&r, bound, text, sizeof text);
    fail_msg("%s of %s: %s", what, where, text);
}

void problem_check(const problem *p, const char *op_name)
{
    char where[256];
    const char *dtype = dtype_names[p->a.dtype];
    snprintf(where, sizeof where, "%s, %s", op_name, p->name);
    const check_result lse =
        check_logarithms(p->expected_lse, p->lse, p->lse_count, check_attention_bound(dtype, false));
    if (!lse.ok)
        fail_msg("lse of %s: [%zu] got %.9g want %.9g", where, lse.worst, lse.got, lse.ref);
    for (int id = OUTPUT_O; id < TENSOR_COUNT; id++)
        expect_close(p->expected[id], p->tensor[id].values, p->tensor[id].count, p->tensor[id].columns,
                     check_attention_bound(dtype, id != OUTPUT_O), tensor_names[id], where);
}
