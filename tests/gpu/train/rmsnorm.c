/* SPDX-License-Identifier: MIT */
/* RMSNorm: rows of every length from one element to more than registers hold, with and without a residual, weights and
 * their gradients in the dtype or in fp32, outputs on inputs. */
#include "tests/gpu/train/ops.h"
#include "tests/gpu/train/run.h"

#include <math.h>

enum { RESIDUAL, ALIAS };
typedef enum alias { DX_ALONE, DX_IS_DY, DX_IS_RESIDUAL } alias;
static const int lengths[] = {1, 7, 64, 100, 768, 1600, 2560, 4608, 12288}, row_counts[] = {1, 3, 130, 4099};
enum { LENGTHS = sizeof lengths / sizeof *lengths, ROW_COUNTS = sizeof row_counts / sizeof *row_counts };
enum { LONG = 2560, FEWER_ROWS = 1031 /* of longer rows in place of the most: eight an SM */ };

static void add_case(case_list *l, const train_op *op, sb_rmsnorm p, bool residual, alias a, bool small)
{
    static const char *const alias_names[] = {"", "-dx=dy", "-dx=residual"};
    train_case *c =
        case_add(l, op, case_dtype_names[p.dtype], "%dx%d%s%s%s%s%s", p.rows, p.d, residual ? "-residual" : "",
                 alias_names[a], p.dtype_param != p.dtype ? "-fp32-weight" : "",
                 p.dtype_grad != p.dtype ? "-fp32-dweight" : "", p.accumulate ? "-added" : "");
    c->p.rmsnorm = p;
    c->variant[RESIDUAL] = residual;
    c->variant[ALIAS] = a;
    c->small = small;
    c->elements = (size_t)p.rows * (size_t)p.d * 6;
}

static void list(case_list *l, const train_op *op, bool backward)
{
    int nth = 0;
    for (int d = 0; d < LENGTHS; d++)
        for (int r = 0; r < ROW_COUNTS; r++)
            for (int dtype = SB_BF16; dtype <= SB_FP32; dtype++)
                for (int residual = 0; residual < 2; residual++, nth++) {
                    sb_rmsnorm p = {.dtype = (sb_dtype)dtype,
                                    .dtype_param = nth / 2 % 2 ? SB_FP32 : (sb_dtype)dtype,
                                    .dtype_grad = backward && nth / 4 % 2 ? SB_FP32 : (sb_dtype)dtype,
                                    .rows = row_counts[r],
                                    .d = lengths[d],
                                    /* Rows of few elements may all be near zero. */
                                    .eps = lengths[d] < 64 ? 0.1f : 1e-5f,
                                    .accumulate = backward && nth % 5 < 2};
                    if (p.d > LONG && p.rows > FEWER_ROWS)
                        p.rows = FEWER_ROWS;
                    if (dtype == SB_TF32 && p.rows != 130)
                        continue;
                    const alias a = !backward ? DX_ALONE : (alias)((nth + d + r) % (residual ? 3 : 2));
                    const bool small = dtype != SB_TF32 && r == 1 && (d == 1 || d == 3 || d == 4 || d == 7);
                    add_case(l, op, p, residual, a, small);
                }
}

/* ---- forward ---- */

enum { F_X, F_WEIGHT, F_Y, F_RSTD, F_RESIDUAL, F_SUM };

static void list_forward(case_list *l, const train_op *op)
{
    list(l, op, false);
}

static void fill_forward(train_case *c)
{
    const sb_rmsnorm *p = &c->p.rmsnorm;
    const size_t n = (size_t)p->rows * (size_t)p->d;
    slot_input(c, "x", p->dtype, n, 2);
    slot_input(c, "weight", p->dtype_param, (size_t)p->d, 1);
    slot_output(c, "y", p->dtype, n, (slot_bound){.units = 1, .relative = 2e-6});
    slot_output(c, "rstd", SB_FP32, (size_t)p->rows, (slot_bound){.relative = 2e-6});
    if (c->variant[RESIDUAL]) {
        slot_input(c, "residual", p->dtype, n, 1);
        slot_output(c, "sum", p->dtype, n, (slot_bound){.units = 0}); /* one rounding: exact */
    }
}

static sb_status run_forward(const train_case *c, const train_call *x)
{
    sb_rmsnorm p = c->p.rmsnorm;
    p.x = x->at[F_X];
    p.weight = x->at[F_WEIGHT];
    p.y = x->at[F_Y];
    p.rstd = x->at[F_RSTD];
    if (c->variant[RESIDUAL]) {
        p.residual = x->at[F_RESIDUAL];
        p.sum = x->at[F_SUM];
    }
    return x->kernels->train->rmsnorm_forward(x->ctx, &p, x->stream);
}

/* The norm of the sum that was written, or of x where there is none, is the same again: backward's recomputation relies on it. So
 * are its statistics alone. */
static bool check_again(train_bed *bed, const train_case *c)
{
    instance x = instance_create(bed, c);
    guarded y = guarded_create(bed->r, x.slots[F_Y].bytes), rstd = guarded_create(bed->r, x.slots[F_RSTD].bytes);
    bool ok = instance_run(bed, &x, " ahead of the norm of the same");
    sb_rmsnorm p = c->p.rmsnorm;
    p.x = x.call.at[c->variant[RESIDUAL] ? F_SUM : F_X];
    p.weight = x.call.at[F_WEIGHT];
    p.y = y.data;
    p.rstd = (float *)rstd.data;
    if (ok && bed->r->kernels->train->rmsnorm_forward(x.call.ctx, &p, x.call.stream) != SB_OK)
        ok = case_fail(bed->r, c, "the norm of the same is refused: %s", sb_last_message());
    ok = ok && instance_slot_equals(bed, &x, F_Y, &y, "of the norm of the same") &&
         instance_slot_equals(bed, &x, F_RSTD, &rstd, "of the norm of the same");
    device_memset(bed->r->dev, rstd.data, 0xff, rstd.bytes);
    p.y = NULL;
    if (ok && bed->r->kernels->train->rmsnorm_forward(x.call.ctx, &p, x.call.stream) != SB_OK)
        ok = case_fail(bed->r, c, "statistics alone are refused: %s", sb_last_message());
    ok = ok && instance_slot_equals(bed, &x, F_RSTD, &rstd, "of the statistics alone");
    guarded_free(bed->r, &y);
    guarded_free(bed->r, &rstd);
    instance_free(bed, &x);
    return ok;
}

/* ---- backward ---- */

enum { B_X, B_WEIGHT, B_RSTD, B_DY, B_RESIDUAL, B_DWEIGHT, B_DX }; /* B_DX only where dx is alone */

static void list_backward(case_list *l, const train_op *op)
{
    list(l, op, true);
}

static void fill_backward(train_case *c)
{
    const sb_rmsnorm *p = &c->p.rmsnorm;
    const size_t d = (size_t)p->d, n = (size_t)p->rows * d;
    const alias a = (alias)c->variant[ALIAS];
    const double terms = d < 64 ? 4 : 0; /* that cancel where there are few */
    const slot_bound dx_bound = {.units = 1, .relative = 2e-6, .absolute = 4e-6, .scale = terms};
    const double root = sqrt(p->rows);
    slot *x = slot_input(c, "x", p->dtype, n, 2);
    slot_input(c, "weight", p->dtype_param, d, 1);
    slot *rstd = slot_add(c, "rstd", SLOT_IN, SB_FP32, (size_t)p->rows);
    for (size_t row = 0; row < (size_t)p->rows; row++) {
        double squares = 0;
        for (size_t i = 0; i < d; i++)
            squares += (double)slot_get(x, row * d + i) * slot_get(x, row * d + i);
        slot_set(rstd, row, (float)(1 / sqrt(squares / p->d + p->eps)));
    }
    slot *dy = slot_input(c, "dy", p->dtype, n, 1);
    slot *residual = slot_input(c, "d_residual", p->dtype, c->variant[RESIDUAL] ? n : 1, 1);
    const slot_bound bound = {.units = 1, .relative = 2e-6, .absolute = 2e-6 + 2e-7 * root, .scale = root};
    if (p->accumulate) {
        slot *dweight = slot_input(c, "dweight", p->dtype_grad, d, 1);
        dweight->role = SLOT_INOUT;
        dweight->bound = bound;
    } else {
        slot_output(c, "dweight", p->dtype_grad, d, bound);
    }
    if (a == DX_ALONE) {
        slot_output(c, "dx", p->dtype, n, dx_bound);
        return;
    }
    slot *onto = a == DX_IS_DY ? dy : residual;
    onto->role = SLOT_INOUT;
    onto->bound = dx_bound;
}

static sb_rmsnorm backward_of(const train_case *c, const train_call *x)
{
    sb_rmsnorm p = c->p.rmsnorm;
    p.x = x->at[B_X];
    p.weight = x->at[B_WEIGHT];
    p.rstd = x->at[B_RSTD];
    p.dy = x->at[B_DY];
    p.d_residual = c->variant[RESIDUAL] ? x->at[B_RESIDUAL] : NULL;
    p.dx = x->at[(const int[]){B_DX, B_DY, B_RESIDUAL}[c->variant[ALIAS]]];
    p.dweight = x->at[B_DWEIGHT];
    p.workspace = x->workspace;
    p.workspace_bytes = x->workspace_bytes;
    return p;
}

static size_t workspace(const train_case *c, const sb_kernels *k, sb_context *ctx)
{
    return k->train->rmsnorm_workspace(ctx, &c->p.rmsnorm);
}

static sb_status run_backward(const train_case *c, const train_call *x)
{
    const sb_rmsnorm p = backward_of(c, x);
    return x->kernels->train->rmsnorm_backward(x->ctx, &p, x->stream);
}

const train_op train_rmsnorm_forward = {"rmsnorm_forward", list_forward, fill_forward, NULL, run_forward, check_again};
const train_op train_rmsnorm_backward = {"rmsnorm_backward", list_backward, fill_backward,
                                         workspace,          run_backward,  NULL};
