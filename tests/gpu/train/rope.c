/* SPDX-License-Identifier: MIT */
/* RoPE in every layout: heads outside or inside of tokens, or a part of wider rows; forth and back. */
#include "tests/gpu/train/ops.h"

#include <math.h>

enum { SLOT_X, SLOT_TABLE };
typedef enum rope_layout { HEADS_OUTSIDE, HEADS_INSIDE, IN_WIDER_ROWS, LAYOUTS } rope_layout;

/* On CUDA strides are whole multiples of 16 bytes. */
static int64_t whole(sb_dtype t, int64_t elements)
{
    const int64_t unit = 16 / sb_dtype_bytes(t);
    return (elements + unit - 1) / unit * unit;
}

static void list(case_list *l, const train_op *op)
{
    static const char *const layouts[] = {"bhsd", "bshd", "wide"};
    static const int shapes[][4] = {{1, 1, 1, 2},      {2, 5, 3, 6},    {1, 17, 2, 64},
                                    {3, 130, 5, 80},   {2, 33, 12, 24}, {2, 3, 1, 300},
                                    {1, 1024, 4, 128}, {4, 512, 25, 64}}; /* B, S, H, D */
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++)
            for (int layout = 0; layout < LAYOUTS; layout++)
                for (int inverse = 0; inverse < 2; inverse++) {
                    const int *n = shapes[s];
                    if (dtype == SB_TF32 && s != 3)
                        continue;
                    train_case *c = case_add(l, op, case_dtype_names[dtype], "b%d-s%d-h%d-d%d-%s%s", n[0], n[1], n[2],
                                             n[3], layouts[layout], inverse ? "-inverse" : "");
                    c->p.rope = (sb_rope){.dtype = (sb_dtype)dtype,
                                          .batch = n[0],
                                          .seq = n[1],
                                          .heads = n[2],
                                          .head_dim = n[3],
                                          .inverse = inverse};
                    c->variant[0] = layout;
                    c->small = dtype != SB_TF32 && (s == 1 || s == 2) && inverse == (layout == HEADS_INSIDE);
                    c->elements = (size_t)n[0] * (size_t)n[1] * (size_t)n[2] * (size_t)n[3] * 2;
                }
}

static sb_rope rope_of(const train_case *c)
{
    sb_rope p = c->p.rope;
    const int64_t head = whole(p.dtype, p.head_dim);
    switch (c->variant[0]) {
    case HEADS_OUTSIDE: p.x.stride_s = head, p.x.stride_h = p.seq * head, p.x.stride_b = p.heads * p.x.stride_h; break;
    case HEADS_INSIDE: p.x.stride_h = head, p.x.stride_s = p.heads * head, p.x.stride_b = p.seq * p.x.stride_s; break;
    default: /* as q in a row of q, k, v, with a gap behind each batch entry */
        p.x.stride_h = head, p.x.stride_s = (3 * p.heads + 2) * head, p.x.stride_b = p.seq * p.x.stride_s + 5 * head;
    }
    return p;
}

static void fill(train_case *c)
{
    const sb_rope p = rope_of(c);
    const int64_t last =
        (p.batch - 1) * p.x.stride_b + (p.heads - 1) * p.x.stride_h + (p.seq - 1) * p.x.stride_s + p.head_dim;
    const size_t dim = (size_t)p.head_dim;
    slot *x = slot_add(c, "x", SLOT_INOUT, p.dtype, (size_t)last);
    slot *draws = slot_input(c, "table", SB_FP32, (size_t)p.seq * dim, 1); /* of the elements first, then of angles */
    x->bound = (slot_bound){.units = 1, .absolute = 2e-6};
    size_t next = 0;
    for (int b = 0; b < p.batch; b++)
        for (int h = 0; h < p.heads; h++)
            for (int s = 0; s < p.seq; s++)
                for (int i = 0; i < p.head_dim; i++) {
                    const int64_t at = b * p.x.stride_b + h * p.x.stride_h + s * p.x.stride_s + i;
                    slot_set(x, (size_t)at, slot_get(draws, next++ % draws->n));
                }
    for (size_t s = 0; s < (size_t)p.seq; s++)
        for (size_t i = 0; i < dim; i += 2) {
            const double angle = (double)s * pow(10000, -(double)i / p.head_dim);
            slot_set(draws, s * dim + i, (float)cos(angle));
            slot_set(draws, s * dim + i + 1, (float)sin(angle));
        }
}

static sb_status run(const train_case *c, const train_call *x)
{
    sb_rope p = rope_of(c);
    p.x.data = x->at[SLOT_X];
    p.table = x->at[SLOT_TABLE];
    return x->kernels->train->rope(x->ctx, &p, x->stream);
}

const train_op train_rope = {"rope", list, fill, NULL, run, NULL};
