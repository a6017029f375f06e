/* SPDX-License-Identifier: MIT */
/* Sums and largest elements along rows and down columns of odd and whole shapes, with gaps between rows. */
#include "tests/gpu/train/ops.h"

#include <math.h>

enum { SLOT_X, SLOT_RESULT };
enum { BAD }; /* variant: one element is NaN */

static void list(case_list *l, const train_op *op)
{
    static const int rows[] = {1, 3, 130, 4099}, columns[] = {1, 7, 64, 129, 1000, 2049, 5000}, gaps[] = {0, 1, 8};
    static const float scales[] = {1, 0.001f, -2};
    int nth = 0;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
            for (int way = 0; way < 4; way++)
                for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++, nth++) {
                    if ((rows[r] > 1000 && columns[i] > 1000) || (dtype == SB_TF32 && (r != 2 || i != 4)))
                        continue;
                    const sb_dtype out = nth / 4 % 3 == 0 ? (sb_dtype)(nth / 12 % 3) : SB_FP32;
                    const bool over_rows = way & 1, maximum = way & 2, bad = nth % 11 == 0;
                    sb_reduce p = {.dtype = (sb_dtype)dtype,
                                   .dtype_out = out == SB_TF32 ? (sb_dtype)dtype : out,
                                   .rows = rows[r],
                                   .columns = columns[i],
                                   .ld = columns[i] + gaps[nth / 4 % 3],
                                   .over_rows = over_rows,
                                   .maximum = maximum,
                                   .scale = scales[nth / 5 % 3]};
                    train_case *c = case_add(l, op, case_dtype_names[dtype], "%dx%d-ld%d-%s-%s-to-%s-times%g%s", p.rows,
                                             p.columns, p.ld, maximum ? "max" : "sum", over_rows ? "columns" : "rows",
                                             case_dtype_names[p.dtype_out], p.scale, bad ? "-nan" : "");
                    c->p.reduce = p;
                    c->variant[BAD] = bad;
                    c->small = dtype != SB_TF32 && r == 2 && (i == 2 || i == 3);
                    c->elements = (size_t)p.rows * (size_t)p.ld;
                }
}

static void fill(train_case *c)
{
    const sb_reduce *p = &c->p.reduce;
    const size_t rows = (size_t)p->rows, columns = (size_t)p->columns, ld = (size_t)p->ld;
    const double root = sqrt(p->over_rows ? p->rows : p->columns);
    slot *x = slot_add(c, "x", SLOT_IN, p->dtype, (rows - 1) * ld + columns);
    slot_fill(c, x, 0, rows, columns, ld, 1);
    if (c->variant[BAD])
        slot_set(x, rows / 2 * ld + columns / 2, NAN);
    slot_bound bound = {.units = 1, .relative = 1e-6, .absolute = 2e-6 + 2e-7 * root, .scale = root * fabs(p->scale)};
    if (p->maximum)
        bound = (slot_bound){.units = 0}; /* of the elements, times one number */
    slot_output(c, "out", p->dtype_out, p->over_rows ? columns : rows, bound);
}

static size_t workspace(const train_case *c, const sb_kernels *k, sb_context *ctx)
{
    return k->train->reduce_workspace(ctx, &c->p.reduce);
}

static sb_status run(const train_case *c, const train_call *x)
{
    sb_reduce p = c->p.reduce;
    p.x = x->at[SLOT_X];
    p.out = x->at[SLOT_RESULT];
    p.workspace = x->workspace;
    p.workspace_bytes = x->workspace_bytes;
    return x->kernels->train->reduce(x->ctx, &p, x->stream);
}

const train_op train_reduce = {"reduce", list, fill, workspace, run, NULL};
