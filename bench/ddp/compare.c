/* SPDX-License-Identifier: MIT */
/* What the ranks came to in the check, against one rank that did everything itself; see compare.h. */
#include <math.h>
#include <stdio.h>

#include "bench/ddp/compare.h"
#include "common/core/numeric.h"

/* Both round each of n - 1 additions to the precision u of the gradients, in another order: their sums differ by
 * about u sqrt(n - 1) of a typical element; four times that is allowed. Where two fp32 numbers are added there is no
 * order and no difference. AdamW divides a gradient by its size plus eps, so that the error of a typical element
 * becomes a larger share of a small one: in norm at most sqrt(rms / eps) times larger, which with the eps of the
 * check is below 32 for any gradient that a mean loss has.
 *
 * That is so after one update. From the second step on products of 16 bits make more of it, how much the reference has
 * measured on itself: four times what it got from the opposite order is allowed, too. */
typedef struct bounds {
    bool exact;
    double grad, param;
    /* Halves of a step of a 16-bit parameter that are no error. Where a rank has the 16 bits alone of a value that is
     * fp32 elsewhere, one; where there are no more than 16 bits, each update may fall on either side: two a step. */
    int half_steps;
} bounds;

static bounds bounds_of(const ddp_case *k, const replica *r)
{
    const comm_dtype wire = replica_comm_dtype(trainer_grad_dtype(r->t));
    const double unit = wire == COMM_FP32 ? 0x1p-24 : wire == COMM_FP16 ? 0x1p-11 : 0x1p-8;
    const double sum = unit * sqrt(k->ranks > 1 ? k->ranks - 1 : 1);
    const bool short_param = sb_dtype_bytes(trainer_param_dtype(r->t)) == 2;
    const bool no_master = r->o.precision->master == SB_MASTER_NONE;
    return (bounds){.exact = k->ranks == 1 || (k->ranks == 2 && wire == COMM_FP32),
                    .grad = 4 * sum,
                    .param = 32 * sum,
                    .half_steps = !short_param       ? 0
                                  : no_master        ? 2 * DDP_CHECK_STEPS
                                  : r->plan->sharded ? 1
                                                     : 0};
}

/* ---- gradients ---- */

static double relative_error(const float *got, const float *want, int64_t n)
{
    double off = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)got[i] - want[i];
        off += d * d;
        size += (double)want[i] * want[i];
    }
    return off == 0 ? 0 : sqrt(off / size);
}

/* Those that this rank updates with: of the others it may have parts of sums. */
static void compare_grads(const replica *r, int rank, const float *grads, const ddp_reference *ref, bounds allowed,
                          ddp_outcome *out)
{
    const params *p = trainer_params(r->t);
    const ownership *own = &r->plan->own;
    const double bound = allowed.exact ? 0 : allowed.grad;
    for (int i = 0; i < p->count && out->ok; i++) {
        const int64_t from = p->tensors[i].first, to = from + p->tensors[i].count;
        for (int k = 0; k < own->n && out->ok; k++) {
            const int64_t first = own->r[k].first > from ? own->r[k].first : from;
            const int64_t last = own->r[k].first + own->r[k].count, end = last < to ? last : to;
            if (first >= end)
                continue;
            const double err = relative_error(grads + first, ref->grads + first, end - first);
            if (!(err <= out->err_grad)) /* NaN is the worst of all */
                out->err_grad = err;
            out->ok = err <= bound;
            if (!out->ok)
                snprintf(out->reason, sizeof out->reason,
                         "the sum of gradients of %s on rank %d is off from one rank's by %.2e of it; allowed is %.1e",
                         p->tensors[i].name, rank, err, bound);
        }
    }
}

/* ---- parameters ---- */

/* What 16 bits keep of a value, as a master weight in two halves is cut. */
static float high_half(float x)
{
    uint16_t high;
    int16_t rest;
    float_split(x, &high, &rest);
    return float_join(high, 0);
}

/* Half the distance of two neighbours in bf16, which has 8 bits. */
static double half_step(double x)
{
    int exponent;
    frexp(x, &exponent);
    return x == 0 ? 0 : ldexp(1, exponent - 9);
}

typedef struct distance {
    double off, moved, size; /* norms: of the error, of what the tensor should have moved, of itself */
} distance;

static distance distance_of(const float *got, const float *want, const float *from, int64_t n, bounds allowed)
{
    double off = 0, moved = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        const double w = want[i], m = w - from[i], whole = fabs(got[i] - w);
        double error = whole;
        if (allowed.exact && allowed.half_steps == 1)
            error = got[i] == high_half(want[i]) ? 0 : whole;
        else if (!allowed.exact && allowed.half_steps)
            error = fmax(0, whole - allowed.half_steps * half_step(w)) + 0 * whole; /* of NaN it is NaN */
        off += error * error;
        moved += m * m;
        size += w * w;
    }
    return (distance){sqrt(off), sqrt(moved), sqrt(size)};
}

/* The most that any tensor of the reference is off by because its sums were made in the opposite order, as a share of
 * what it moved. */
static double distance_by_order(const params *p, const ddp_reference *ref, bounds allowed)
{
    double most = 0;
    for (int i = 0; ref->reversed && i < p->count; i++) {
        const int64_t first = p->tensors[i].first;
        const distance d =
            distance_of(ref->reversed + first, ref->after + first, ref->start + first, p->tensors[i].count, allowed);
        most = fmax(most, d.off == 0 ? 0 : d.off / d.moved);
    }
    return most;
}

static void compare_params(const replica *r, const float *values, const ddp_reference *ref, bounds allowed,
                           ddp_outcome *out)
{
    const params *p = trainer_params(r->t);
    const double order = allowed.exact ? 0 : distance_by_order(p, ref, allowed);
    for (int i = 0; i < p->count && out->ok; i++) {
        const int64_t first = p->tensors[i].first;
        const distance d =
            distance_of(values + first, ref->after + first, ref->start + first, p->tensors[i].count, allowed);
        const double err = d.off == 0 ? 0 : d.off / d.moved;
        /* Two results that differ are also rounded differently. */
        double bound = allowed.exact || d.off == 0 ? 0 : allowed.param + 0x1p-24 * d.size / d.moved;
        if (bound > 0)
            bound = fmax(bound, 4 * order);
        if (!(err <= out->err_param))
            out->err_param = err;
        out->ok = err <= bound;
        if (!out->ok)
            snprintf(out->reason, sizeof out->reason,
                     "%s after %d steps is off from one rank's by %.2e of what it moved; allowed is %.1e",
                     p->tensors[i].name, DDP_CHECK_STEPS, err, bound);
    }
}

void ddp_compare(const ddp_case *k, const replica *r, const float *grads, const float *values, const ddp_reference *ref,
                 ddp_outcome *out)
{
    const bounds allowed = bounds_of(k, r);
    compare_grads(r, launch_rank(k->l), grads, ref, allowed, out);
    if (values)
        compare_params(r, values, ref, allowed, out);
}
