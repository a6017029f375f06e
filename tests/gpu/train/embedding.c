/* SPDX-License-Identifier: MIT */
/* The embedding and its gradient: small and large vocabularies, ids that are all equal, falling, few or random. */
#include "tests/gpu/train/ops.h"

#include "common/core/rng.h"

#include <math.h>

enum { SLOT_IDS, SLOT_SOURCE, SLOT_RESULT };
typedef enum id_kind { IDS_RANDOM, IDS_EQUAL, IDS_FALLING, IDS_FEW, ID_KINDS } id_kind;

static void list(case_list *l, const train_op *op, bool backward)
{
    static const char *const kinds[] = {"random", "equal", "falling", "few"};
    static const int vocabs[] = {1, 61, 10000, 151936}, rows[] = {1, 5, 130, 1000, 4096},
                     widths[] = {7, 64, 100, 768, 1};
    int nth = 0;
    for (int v = 0; v < 4; v++)
        for (int r = 0; r < 5; r++)
            for (int kind = 0; kind < ID_KINDS; kind++)
                for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++, nth++) {
                    if (dtype == SB_TF32 && (v != 1 || r != 2))
                        continue;
                    if (vocabs[v] == 1 && kind != IDS_EQUAL)
                        continue;
                    const int d = widths[(nth / 4 + dtype) % (vocabs[v] > 100000 ? 2 : 5)];
                    const sb_embedding p = {.dtype = (sb_dtype)dtype,
                                            .dtype_grad = backward && nth % 3 ? SB_FP32 : (sb_dtype)dtype,
                                            .rows = rows[r],
                                            .vocab = vocabs[v],
                                            .d = d,
                                            .accumulate = backward && nth % 5 < 2,
                                            .slice = nth % 3 == 1, /* a third of the ids are other rows' */
                                            .first_id = nth % 3 == 1 ? vocabs[v] / 3 : 0};
                    train_case *c = case_add(l, op, case_dtype_names[dtype], "%dx%d-of-%d-%s%s%s%s", p.rows, d, p.vocab,
                                             kinds[kind], p.dtype_grad != p.dtype ? "-to-fp32" : "",
                                             p.accumulate ? "-added" : "", p.slice ? "-slice" : "");
                    c->p.embedding = p;
                    c->variant[0] = kind;
                    c->small = dtype != SB_TF32 && v == 1 && (r == 1 || r == 2) && kind < IDS_FALLING;
                    c->elements = ((size_t)p.vocab + (size_t)p.rows) * (size_t)d * 2;
                }
}

static void list_forward(case_list *l, const train_op *op)
{
    list(l, op, false);
}

static void list_backward(case_list *l, const train_op *op)
{
    list(l, op, true);
}

static int32_t id_of(const train_case *c, int row)
{
    const sb_embedding *p = &c->p.embedding;
    const int random = (int)(rng_uniform(3, (uint32_t)p->rows, (uint64_t)row) * p->vocab);
    switch (c->variant[0]) {
    case IDS_EQUAL: return p->vocab - 1;
    case IDS_FALLING: return p->vocab - 1 - row % p->vocab;
    case IDS_FEW: return p->vocab / 2 + random % 3;
    default: return random;
    }
}

static void fill_ids(train_case *c)
{
    const int rows = c->p.embedding.rows;
    int32_t *ids = (int32_t *)slot_add_content(c, "ids", SLOT_IN, SLOT_INTEGERS, (size_t)rows)->before;
    for (int i = 0; i < rows; i++)
        ids[i] = id_of(c, i);
}

static void fill_forward(train_case *c)
{
    const sb_embedding *p = &c->p.embedding;
    fill_ids(c);
    slot_input(c, "table", p->dtype, (size_t)p->vocab * (size_t)p->d, 1);
    slot_output(c, "out", p->dtype, (size_t)p->rows * (size_t)p->d, (slot_bound){.units = 0}); /* copies: exact */
}

static sb_status run_forward(const train_case *c, const train_call *x)
{
    sb_embedding p = c->p.embedding;
    p.ids = x->at[SLOT_IDS];
    p.table = x->at[SLOT_SOURCE];
    p.out = x->at[SLOT_RESULT];
    return x->kernels->train->embedding_forward(x->ctx, &p, x->stream);
}

static void fill_backward(train_case *c)
{
    const sb_embedding *p = &c->p.embedding;
    const bool few = c->variant[0] == IDS_EQUAL || c->variant[0] == IDS_FEW;
    const double terms = few ? p->rows : p->rows / p->vocab + 4; /* of the sum for one id, about */
    fill_ids(c);
    slot_input(c, "d_out", p->dtype, (size_t)p->rows * (size_t)p->d, 1);
    const size_t n = (size_t)p->vocab * (size_t)p->d;
    const slot_bound bound = {.units = 1, .relative = 1e-6, .absolute = 3e-6, .scale = sqrt(terms), .rel_l2 = 3e-6};
    if (p->accumulate) {
        slot *table = slot_input(c, "d_table", p->dtype_grad, n, 1);
        table->role = SLOT_INOUT;
        table->bound = bound;
    } else {
        slot_output(c, "d_table", p->dtype_grad, n, bound);
    }
}

static size_t workspace(const train_case *c, const sb_kernels *k, sb_context *ctx)
{
    return k->train->embedding_workspace(ctx, &c->p.embedding);
}

static sb_status run_backward(const train_case *c, const train_call *x)
{
    sb_embedding p = c->p.embedding;
    p.ids = x->at[SLOT_IDS];
    p.d_out = x->at[SLOT_SOURCE];
    p.d_table = x->at[SLOT_RESULT];
    p.workspace = x->workspace;
    p.workspace_bytes = x->workspace_bytes;
    return x->kernels->train->embedding_backward(x->ctx, &p, x->stream);
}

const train_op train_embedding_forward = {"embedding_forward", list_forward, fill_forward, NULL, run_forward, NULL};
const train_op train_embedding_backward = {"embedding_backward", list_backward, fill_backward, workspace,
                                           run_backward,         NULL};
