/* SPDX-License-Identifier: MIT */
/* See problem.h. */
#include "tests/gpu/problem.h"

#include "common/core/error.h"
#include "common/core/numeric.h"
#include "common/core/rng.h"
#include "kernels/shared/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const tensor_names[T_COUNT] = {"q", "k", "v", "d_o", "o", "dq", "dk", "dv"};

sb_tensor *problem_view(const problem *p, sb_attention *a, int tensor)
{
    return (sb_tensor *)((char *)a + p->tensor[tensor].offset);
}

static int heads_of(const problem *p, int tensor)
{
    return is_key_tensor(tensor) ? p->a.heads_kv : p->a.heads;
}

static int seq_of(const problem *p, int tensor)
{
    return is_key_tensor(tensor) ? p->a.seq_k : p->a.seq_q;
}

static size_t elements_of(const problem *p, int tensor)
{
    return p->tensor[tensor].rows * p->tensor[tensor].columns;
}

size_t problem_row_at(const problem *p, int tensor, size_t row)
{
    const sb_tensor *t = problem_view(p, (sb_attention *)&p->a, tensor);
    size_t seq = (size_t)seq_of(p, tensor), heads = (size_t)heads_of(p, tensor);
    size_t s = row % seq, h = row / seq % heads, b = row / seq / heads;
    return (b * (size_t)t->stride_b + h * (size_t)t->stride_h + s * (size_t)t->stride_s) *
           (size_t)sb_dtype_bytes(p->a.dtype);
}

void problem_read_row(const problem *p, int tensor, const unsigned char *buffer, size_t row, double *out)
{
    const unsigned char *at = buffer + problem_row_at(p, tensor, row);
    for (size_t i = 0; i < p->tensor[tensor].columns; i++)
        out[i] = p->a.dtype == SB_BF16   ? bf16_to_float(((const uint16_t *)at)[i])
                 : p->a.dtype == SB_FP16 ? fp16_to_float(((const uint16_t *)at)[i])
                                         : ((const float *)at)[i];
}

static void create_tensor(problem *p, int tensor, size_t offset)
{
    static const int row_pad = 8, head_pad = 16, batch_pad = 24; /* elements: multiples of 16 bytes in every dtype */
    const int64_t d = is_value_tensor(tensor) ? sb_head_dim_v(&p->a) : p->a.head_dim, heads = heads_of(p, tensor),
                  seq = seq_of(p, tensor);
    const bool padded = p->c->layout == CASE_PADDED;
    struct problem_tensor *t = &p->tensor[tensor];
    t->offset = offset;
    sb_tensor *view = problem_view(p, &p->a, tensor);
    if (p->c->layout == CASE_BSHD)
        *view = (sb_tensor){NULL, seq * heads * d, d, heads * d};
    else {
        view->stride_s = d + (padded ? row_pad : 0);
        view->stride_h = seq * view->stride_s + (padded ? head_pad : 0);
        view->stride_b = heads * view->stride_h + (padded ? batch_pad : 0);
    }
    t->rows = (size_t)(p->a.batch * heads * seq), t->columns = (size_t)d;
    t->bytes = (size_t)(p->a.batch * view->stride_b) * (size_t)sb_dtype_bytes(p->a.dtype);
    t->host = xmalloc(t->bytes);
    memset(t->host, 0xff, t->bytes); /* NaN in every dtype */
    t->values = xcalloc(elements_of(p, tensor), sizeof(double));
}

/* The fp32 values of an input before rounding. `x` holds N(0,1). */
static void shape_values(const problem *p, int tensor, float *x)
{
    const size_t rows = p->tensor[tensor].rows;
    const int d = p->a.head_dim, seq = seq_of(p, tensor);
    const case_values kind = p->c->values;
    if ((tensor != T_Q && tensor != T_K) || kind == VALUES_NORMAL)
        return;
    for (size_t row = 0; row < rows; row++)
        for (int i = 0; i < d; i++) {
            float *e = &x[row * (size_t)d + (size_t)i];
            const int key = (int)(row % (size_t)seq);
            const float along = seq > 1 ? 20.0f * (float)key / (float)(seq - 1) - 10 : 0; /* -10 .. 10 */
            if (kind == VALUES_PEAKED)
                *e *= 8;
            else if (kind == VALUES_IDENTICAL)
                *e = tensor == T_K ? x[i] : *e;
            else if (tensor == T_Q)
                *e = 1 + 0.2f * *e;
            else if (kind == VALUES_OUTLIER)
                *e = key == seq / 3 ? 20 / sqrtf((float)d) : *e;
            else
                *e = (kind == VALUES_INCREASING ? along : -along) / sqrtf((float)d) + 0.05f * *e;
        }
}

static void fill_input(problem *p, int tensor)
{
    const size_t n = elements_of(p, tensor), d = p->tensor[tensor].columns;
    struct problem_tensor *t = &p->tensor[tensor];
    OWNED float *x = xmalloc(n * sizeof *x);
    rng_normal(x, n, rng_hash(1, p->c->name), (uint32_t)tensor, 0, 1);
    shape_values(p, tensor, x);
    for (size_t row = 0; row < t->rows; row++) {
        unsigned char *at = t->host + problem_row_at(p, tensor, row);
        for (size_t i = 0; i < d; i++) {
            float value = x[row * d + i];
            if (p->a.dtype == SB_BF16)
                ((uint16_t *)at)[i] = bf16_from_float(value);
            else if (p->a.dtype == SB_FP16)
                ((uint16_t *)at)[i] = fp16_from_float(value);
            else
                ((float *)at)[i] = value;
        }
        problem_read_row(p, tensor, t->host, row, t->values + row * d);
    }
}

problem *problem_create(const test_case *c)
{
    static const size_t offsets[T_COUNT] = {
        offsetof(sb_attention, q), offsetof(sb_attention, k),  offsetof(sb_attention, v),  offsetof(sb_attention, d_o),
        offsetof(sb_attention, o), offsetof(sb_attention, dq), offsetof(sb_attention, dk), offsetof(sb_attention, dv)};
    problem *p = xcalloc(1, sizeof *p);
    p->c = c;
    p->a = (sb_attention){.batch = c->batch,
                          .heads = c->heads,
                          .heads_kv = c->heads_kv,
                          .seq_q = c->seq_q,
                          .seq_k = c->seq_k,
                          .head_dim = c->head_dim,
                          .head_dim_v = c->head_dim_v,
                          .dtype = c->dtype,
                          .causal = c->causal,
                          .scale = c->scale,
                          .windowed = c->windowed,
                          .window_left = c->window_left,
                          .window_right = c->window_right,
                          .packed = c->documents > 0,
                          .documents = c->documents,
                          .cu_seqlens_q = c->cu_seqlens_q,
                          .cu_seqlens_k = c->cu_seqlens_k};
    for (int tensor = 0; tensor < T_COUNT; tensor++) {
        create_tensor(p, tensor, offsets[tensor]);
        if (!is_output(tensor))
            fill_input(p, tensor);
    }
    p->lse_count = p->tensor[T_Q].rows;
    p->lse = xcalloc(p->lse_count, sizeof *p->lse);
    for (int tensor = T_DQ; tensor <= T_DK; tensor++)
        p->tensor[tensor].terms = xcalloc(p->tensor[tensor].rows, sizeof(double));
    return p;
}

void problem_free(problem *p)
{
    for (int tensor = 0; tensor < T_COUNT; tensor++) {
        free(p->tensor[tensor].host);
        free(p->tensor[tensor].values);
        free(p->tensor[tensor].terms);
    }
    free(p->lse);
    free(p);
}

static double rms(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum / (double)n);
}

/* Largest |x|^2 of a row, for the bound |q . k| <= |q| |k|. */
static double largest_square(const problem *p, int tensor)
{
    double most = 0;
    for (size_t row = 0; row < p->tensor[tensor].rows; row++) {
        double norm = rms(p->tensor[tensor].values + row * (size_t)p->a.head_dim, (size_t)p->a.head_dim);
        most = fmax(most, norm * norm * p->a.head_dim);
    }
    return most;
}

void problem_finish(problem *p)
{
    const double scale = p->a.scale != 0 ? fabs(p->a.scale) : 1 / sqrt(p->a.head_dim);
    for (int tensor = 0; tensor < T_COUNT; tensor++)
        p->rms[tensor] = rms(p->tensor[tensor].values, elements_of(p, tensor));
    p->largest_score = scale * sqrt(largest_square(p, T_Q) * largest_square(p, T_K));
}

bool problem_cpu_affordable(const problem *p)
{
    return (double)p->a.batch * p->a.heads * p->a.seq_q * p->a.seq_k * p->a.head_dim < 1.5e8;
}

bool problem_reference(const problem *p, const sb_kernels *k, sb_context *ctx, const sb_attention *a, void *stream,
                       double *const out[T_COUNT], double *const terms[T_COUNT], double *lse)
{
    const size_t rows = p->tensor[T_Q].rows, keys = p->tensor[T_K].rows, most = rows > keys ? rows : keys;
    int *index = xcalloc(most * 2, sizeof *index), *row = index + most;
    for (size_t i = 0; i < rows; i++) {
        index[i] = (int)(i / (size_t)a->seq_q);
        row[i] = (int)(i % (size_t)a->seq_q);
    }
    const sb_attention_rows query_rows = {
        .n = (int)rows, .bh = index, .q_row = row, .o = out[T_O], .dq = out[T_DQ], .dq_terms = terms[T_DQ], .lse = lse};
    bool ok = k->reference(ctx, a, &query_rows, stream) == SB_OK;
    for (size_t i = 0; i < keys; i++) {
        index[i] = (int)(i / (size_t)a->seq_k);
        row[i] = (int)(i % (size_t)a->seq_k);
    }
    const sb_attention_rows key_rows = {
        .n = (int)keys, .bh_kv = index, .k_row = row, .dk = out[T_DK], .dk_terms = terms[T_DK], .dv = out[T_DV]};
    ok = ok && k->reference(ctx, a, &key_rows, stream) == SB_OK;
    free(index);
    return ok;
}

void problem_expect_from_cpu(problem *p)
{
    const sb_kernels *cpu = sb_kernels_cpu();
    sb_context *ctx = NULL;
    sb_attention a = p->a;
    double *out[T_COUNT], *terms[T_COUNT];
    if (cpu->create(0, &ctx) != SB_OK)
        die(EXIT_CODE_FAILURE, "the CPU backend: %s", sb_last_message());
    for (int tensor = 0; tensor < T_COUNT; tensor++) {
        problem_view(p, &a, tensor)->data = p->tensor[tensor].host;
        out[tensor] = p->tensor[tensor].values;
        terms[tensor] = p->tensor[tensor].terms;
    }
    a.workspace_bytes = cpu->reference_workspace(ctx, &a, true);
    a.workspace = xmalloc(a.workspace_bytes);
    if (!problem_reference(p, cpu, ctx, &a, NULL, out, terms, p->lse))
        die(EXIT_CODE_FAILURE, "the CPU reference of %s: %s", p->c->name, sb_last_message());
    free(a.workspace);
    cpu->destroy(ctx);
}
