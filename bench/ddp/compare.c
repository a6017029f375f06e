/* SPDX-License-Identifier: MIT */
/* Compares the results of the ranks with those of one rank that computed everything; see verify.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/ddp/verify.h"
#include "common/core/numeric.h"
#include "common/core/spread.h"
#include "common/train/update.h"

/* How far two right results may be apart.
 *
 * Gradients: both sides round each of n - 1 additions to the precision u of the gradients, in another order: their sums
 * differ by about u sqrt(n - 1) of a typical element; four times that is allowed. Where two fp32 numbers are added there
 * is no order and no difference. Of several micro-batches each is a term.
 *
 * Parameters after the first update: AdamW divides a gradient by its size plus eps, so that the error of a typical element
 * becomes a larger share of a small one: in norm at most sqrt(rms / eps) times larger, which with the eps of the check is
 * below 32 for any gradient that a mean loss has.
 *
 * Parameters after later updates: parameters that differ in their last bits are operands of the next step. Where products
 * round their operands to a unit v, a difference d << v moves a share d / v of them to the other neighbour, by about v: in
 * norm sqrt(d v), a rare event and much larger than d. Every op that rounds does the same with what it gets, so that along the
 * depth of a model d becomes sqrt(d v), sqrt(v sqrt(d v)), ... and tends to v, whatever it was: both sides are then two
 * right ways of rounding. How far a given pair gets is chance, which one more order of the additions does not measure.
 * So four times v of what a tensor moved is allowed; 1.1 v was seen in small models on a CPU, 0.65 v in slices of xl on four
 * H200. That is far below an error: where one of four ranks gives half a bucket, or that of the step before, from the
 * second update on, parameters are off by 0.15 or 0.06 of what they moved, which is 39 v or 15 v of bf16.
 *
 * Moments in 16 bits are rounded to a unit v, too: a difference d of gradients gives one of sqrt(d v). Four times that is
 * allowed; a fifth of it was seen. In a tensor of few elements, a single one that falls on the other side is more: v, of one
 * element. So is a gradient of q or k where a token sees itself alone: it is made of roundings, which AdamW makes as large as
 * any other's, and only where every bit must agree can it be compared. */
/* A batch's share in the mean: divided by other numbers, gradients are rounded differently, which is much less than a
 * missing or a double division, whose error is at least half. */
static const double mean_bound = 0.1;

typedef struct bounds {
    bool exact, exact_params; /* a norm that ranks add up from their slices has another order, too */
    double grad, first, after;
    double element; /* of one element of a tensor after later updates */
} bounds;

static double unit_of(sb_dtype t) /* of rounding: half the distance of two neighbours, relative, at most */
{
    return t == SB_BF16 ? 0x1p-8 : t == SB_FP16 || t == SB_TF32 ? 0x1p-11 : 0x1p-24;
}

/* Ranks that share sequences add up, within a sum over tokens, in another order than one product does, and attention sees its
 * keys in other pieces: each op rounds differently from the first on, as where ranks share layers (bench/share/verify.c). */
static bounds bounds_of_context(const replica *r)
{
    switch (r->o.precision->compute) {
    case SB_FP32:
        return r->o.split ? (bounds){.grad = 2e-3, .first = 2e-2, .after = 2e-2}
                          : (bounds){.grad = 2e-4, .first = 5e-3, .after = 5e-3};
    case SB_TF32: return (bounds){.grad = 1e-2, .first = 2e-2, .after = 2e-2};
    default:
        return (bounds){.grad = 1e-1,
                        .first = 5e-1,
                        .after = 5e-1}; /* an update of AdamW keeps the sign of a small gradient, or not */
    }
}

static bounds bounds_of(const ddp_case *k, const replica *r)
{
    if (step_context_ranks(&r->o) > 1)
        return bounds_of_context(r);
    const sb_dtype sums = trainer_state_of(r->t).grad_dtype, wire = sums == SB_TF32 ? SB_FP32 : sums;
    const int batches = step_micro_batches(&r->o), terms = k->ranks * batches;
    const double sum = unit_of(wire) * sqrt(terms > 1 ? terms - 1 : 1);
    const double moments = r->o.moments == MOMENTS_BF16 ? 4 * sqrt(4 * sum * unit_of(SB_BF16)) : 0;
    const bool exact = terms == 1 || (wire == SB_FP32 && (terms == 2 || k->ranks == 1));
    return (bounds){.exact = exact,
                    .exact_params = exact && !(trainer_update_wants_all(r->t) && r->plan->sharded),
                    .grad = 4 * sum,
                    .first = 32 * sum,
                    .element = r->o.moments == MOMENTS_BF16 ? unit_of(SB_BF16) : 0,
                    .after = fmax(fmax(32 * sum, moments), 4 * unit_of(r->o.precision->compute))};
}

/* Halves of a step of a 16-bit parameter that are no error after a number of updates. Where a rank has only the 16 bits of a
 * value that is fp32 elsewhere, one; where there are no more than 16 bits, each update may fall on either side: two an
 * update. */
static int half_steps_of(const replica *r, int updates)
{
    if (sb_dtype_bytes(trainer_state_of(r->t).param_dtype) != 2)
        return 0;
    return r->o.precision->master == SB_MASTER_NONE ? 2 * updates : r->plan->sharded ? 1 : 0;
}

/* ---- gradients ---- */

static double relative_error(const float *got, const float *want, int64_t n)
{
    const spread_sums s = spread_squares((size_t)n, got, want);
    return s.x[0] == 0 ? 0 : sqrt(s.x[0] / s.x[2]);
}

/* Only the gradients that this rank updates with: the others may be partial sums here. */
static void compare_grads(const replica *r, int rank, const float *grads, const ddp_reference *ref, double bound,
                          ddp_outcome *out)
{
    const params *p = trainer_params(r->t);
    const ownership *own = &r->plan->own;
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

/* A norm may be added up in another order. */
static const double norm_bound = 1e-6;

static void compare_norms(int rank, double got, double want, double bound, ddp_outcome *out)
{
    const double err = fabs(got - want) / want;
    out->ok = err <= bound;
    if (!out->ok)
        snprintf(out->reason, sizeof out->reason,
                 "the norm of all gradients is %g on rank %d and %g on one rank: off by %.2e of it; allowed is %.1e",
                 got, rank, want, err, bound);
}

/* ---- parameters ---- */

/* The upper 16 bits of a value, which a master weight in two halves keeps as its parameter. */
static float high_half(float x)
{
    uint16_t high;
    int16_t rest;
    float_split(x, &high, &rest);
    return float_join(high, 0);
}

/* Half the distance between neighbours in bf16, which has 8 significant bits: the power of two at x or below, over 256. frexp
 * and ldexp took most of a comparison's time. */
static double half_step(float x)
{
    const double wide = x;
    uint64_t bits;
    memcpy(&bits, &wide, sizeof bits);
    bits &= 0x7ff0000000000000; /* sign and mantissa off; every float is a normal double */
    double power;
    memcpy(&power, &bits, sizeof power);
    return power * 0x1p-8;
}

typedef struct distance {
    double off, moved, size; /* norms: of the error, of what the tensor should have moved, of itself */
} distance;

typedef struct updates {
    const float *got, *want, *from;
    bool exact;
    int half_steps;
} updates;

/* With half_steps: if exact, the parameter must be the upper half of what is wanted; otherwise a deviation of that many half
 * steps is no error. */
static spread_sums sums_of_params(const void *arg, size_t start, size_t n)
{
    const updates u = *(const updates *)arg;
    const float *const got = u.got + start, *const want = u.want + start, *const from = u.from + start;
    double off[SPREAD_LANES] = {0}, moved[SPREAD_LANES] = {0}, size[SPREAD_LANES] = {0};
    for (size_t first = 0; first < n; first += SPREAD_LANES) {
        const int lanes = n - first < SPREAD_LANES ? (int)(n - first) : SPREAD_LANES;
        double error[SPREAD_LANES];
        for (int lane = 0; lane < lanes; lane++)
            error[lane] = fabs((double)got[first + lane] - want[first + lane]);
        if (u.exact && u.half_steps == 1)
            for (int lane = 0; lane < lanes; lane++)
                error[lane] = got[first + lane] == high_half(want[first + lane]) ? 0 : error[lane];
        else if (!u.exact && u.half_steps)
            for (int lane = 0; lane < lanes; lane++) { /* of NaN it is NaN */
                const double more = error[lane] - u.half_steps * half_step(want[first + lane]);
                error[lane] = (more > 0 ? more : 0) + 0 * error[lane];
            }
        for (int lane = 0; lane < lanes; lane++) {
            const double w = want[first + lane], m = w - from[first + lane];
            off[lane] += error[lane] * error[lane];
            moved[lane] += m * m;
            size[lane] += w * w;
        }
    }
    return (spread_sums){{spread_total(off), spread_total(moved), spread_total(size)}};
}

static distance distance_of(const updates *u, int64_t n)
{
    const spread_sums s = spread_sum((size_t)n, sums_of_params, u);
    return (distance){sqrt(s.x[0]), sqrt(s.x[1]), sqrt(s.x[2])};
}

static void compare_params(const replica *r, int count, const float *got, const float *want, const float *start,
                           double bound, double element, ddp_outcome *out)
{
    const params *p = trainer_params(r->t);
    out->err_param = 0;
    for (int i = 0; i < p->count && out->ok; i++) {
        const int64_t first = p->tensors[i].first;
        const param_kind kind = p->tensors[i].kind;
        if (bound > 0 && count > 1 && r->o.seq == 1 && (kind == PARAM_Q || kind == PARAM_K))
            continue;
        const updates u = {got + first, want + first, start + first, bound == 0, half_steps_of(r, count)};
        const distance d = distance_of(&u, p->tensors[i].count);
        const double err = d.off == 0 ? 0 : d.off / d.moved;
        /* Two results that differ are also rounded differently. */
        const double one = element / sqrt((double)p->tensors[i].count);
        const double allowed = bound == 0 || d.off == 0 ? 0 : bound + one + 0x1p-24 * d.size / d.moved;
        if (!(err <= out->err_param))
            out->err_param = err;
        out->ok = err <= allowed;
        if (!out->ok)
            snprintf(out->reason, sizeof out->reason,
                     "%s after %d update%s is off from one rank's by %.2e of what it moved; allowed is %.1e",
                     p->tensors[i].name, count, count == 1 ? "" : "s", err, allowed);
    }
}

void ddp_compare(const ddp_case *k, const replica *r, const ddp_results *got, const ddp_reference *ref,
                 ddp_outcome *out)
{
    const bounds b = bounds_of(k, r);
    if (!(ref->err_mean <= mean_bound)) {
        out->ok = false;
        out->err_grad = ref->err_mean;
        snprintf(out->reason, sizeof out->reason,
                 "gradients of a rank are not its share in the mean over %d ranks: off by %.2e of it", k->ranks,
                 ref->err_mean);
        return;
    }
    compare_grads(r, launch_rank(k->l), got->grads, ref, b.exact ? 0 : b.grad, out);
    if (out->ok && trainer_update_wants_all(r->t))
        compare_norms(launch_rank(k->l), got->norm, ref->norm, fmax(b.grad, norm_bound), out);
    if (launch_rank(k->l) > 0 || !out->ok)
        return;
    compare_params(r, 1, got->first, ref->first, ref->start, b.exact_params ? 0 : b.first, 0, out);
    if (out->ok)
        compare_params(r, DDP_CHECK_STEPS, got->after, ref->after, ref->start, b.exact_params ? 0 : b.after, b.element,
                       out);
}
