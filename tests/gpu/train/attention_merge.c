/* SPDX-License-Identifier: MIT */
/* Merging parts of attention: every dtype, odd rows and widths, heads outside or inside of tokens; rows of which a part or
 * both saw no key. */
#include "tests/gpu/train/ops.h"

#include <math.h>

enum { SLOT_O, SLOT_LSE, SLOT_SUM, SLOT_LSE_SUM };
enum { INSIDE }; /* variant: heads are inside of tokens */

static void list(case_list *l, const train_op *op)
{
    static const int shapes[][4] = {{1, 1, 1, 16}, {2, 3, 5, 64}, {1, 4, 130, 128}, {3, 2, 33, 80}, {1, 2, 1000, 256}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++)
            for (int inside = 0; inside < 2; inside++)
                for (int first = 0; first < 2; first++) {
                    const int *n = shapes[s];
                    if (dtype == SB_TF32 && s != 1)
                        continue;
                    train_case *c = case_add(l, op, case_dtype_names[dtype], "b%d-h%d-s%d-d%d-%s%s", n[0], n[1], n[2],
                                             n[3], inside ? "bshd" : "bhsd", first ? "-first" : "");
                    c->p.attention_merge = (sb_attention_merge){.dtype = (sb_dtype)dtype,
                                                                .batch = n[0],
                                                                .heads = n[1],
                                                                .seq = n[2],
                                                                .columns = n[3],
                                                                .first = first};
                    c->variant[INSIDE] = inside;
                    c->small = dtype != SB_TF32 && s == 1;
                    c->elements = (size_t)n[0] * (size_t)n[1] * (size_t)n[2] * (size_t)n[3] * 2;
                }
}

static void fill(train_case *c)
{
    const sb_attention_merge *p = &c->p.attention_merge;
    const size_t rows = (size_t)p->batch * (size_t)p->heads * (size_t)p->seq, n = rows * (size_t)p->columns;
    slot_input(c, "o", p->dtype, n, 1);
    slot *lse = slot_input(c, "lse", SB_FP32, rows, 3);
    slot *sum = slot_add(c, "o_sum", SLOT_INOUT, SB_FP32, n);
    slot *lse_sum = slot_add(c, "lse_sum", SLOT_INOUT, SB_FP32, rows);
    slot_fill(c, sum, 0, 1, n, n, 1);
    slot_fill(c, lse_sum, 0, 1, rows, rows, 3);
    sum->bound = (slot_bound){.units = 4, .absolute = 2e-6};
    lse_sum->bound = (slot_bound){.units = 4, .absolute = 2e-6};
    for (size_t r = 0; r < rows; r += 7) { /* a blind part, a blind sum, both */
        slot_set(lse, r, r % 3 ? -INFINITY : 1);
        slot_set(lse_sum, r, r % 3 == 1 ? 1 : -INFINITY);
    }
}

static sb_status run(const train_case *c, const train_call *x)
{
    sb_attention_merge p = c->p.attention_merge;
    const int64_t d = p.columns;
    const sb_tensor t = c->variant[INSIDE] ? (sb_tensor){NULL, p.seq * p.heads * d, d, p.heads * d}
                                           : (sb_tensor){NULL, p.heads * p.seq * d, p.seq * d, d};
    p.o = p.o_sum = t;
    p.o.data = x->at[SLOT_O];
    p.lse = x->at[SLOT_LSE];
    p.o_sum.data = x->at[SLOT_SUM];
    p.lse_sum = x->at[SLOT_LSE_SUM];
    return x->kernels->train->attention_merge(x->ctx, &p, x->stream);
}

const train_op train_attention_merge = {"attention_merge", list, fill, NULL, run, NULL};
