/* SPDX-License-Identifier: MIT */
/* Is what an op left in its slots what the reference left there? Elements that the reference left as they were filled
 * (0xff) must be so still, which covers the gaps between rows; all others must have been written. */
#include "tests/gpu/train/case.h"

#include "common/core/numeric.h"

#include <math.h>
#include <string.h>

/* Elements of a slot of floats or remainders, and the bf16 halves of the latter. */
typedef struct view {
    const slot *s;
    const unsigned char *x, *high;
} view;

static inline bool is_poison(const view *v, size_t i)
{
    if (v->s->content == SLOT_REMAINDERS)
        return false;
    return slot_element_bytes(v->s) == 2 ? ((const uint16_t *)v->x)[i] == 0xffff
                                         : ((const uint32_t *)v->x)[i] == 0xffffffff;
}

static inline double element(const view *v, size_t i)
{
    if (v->s->content == SLOT_REMAINDERS)
        return float_join(((const uint16_t *)v->high)[i], ((const int16_t *)v->x)[i]);
    switch (v->s->dtype) {
    case SB_BF16: return bf16_to_float(((const uint16_t *)v->x)[i]);
    case SB_FP16: return fp16_to_float(((const uint16_t *)v->x)[i]);
    default: return ((const float *)v->x)[i];
    }
}

/* A unit in the last place of x, which is finite. */
static inline double unit_of(sb_dtype t, double x)
{
    const double power = float_of_bits(float_bits((float)x) & 0x7f800000); /* the largest power of two up to |x| */
    switch (t) {
    case SB_BF16: return power * 0x1p-7;
    case SB_FP16: return fmax(power * 0x1p-10, 0x1p-24);
    default: return power * 0x1p-23;
    }
}

static double root_mean_square(const view *want)
{
    double squares = 0;
    size_t n = 0;
    for (size_t i = 0; i < want->s->n; i++) {
        const double x = is_poison(want, i) ? NAN : element(want, i);
        if (isfinite(x)) {
            squares += x * x;
            n++;
        }
    }
    return n ? sqrt(squares / (double)n) : 0;
}

/* Where roundings decide alone, one in some hundred falls on the other side, or one of a few elements. */
static double allowed_rel_l2(const slot *s, double rms, double scale, size_t n)
{
    static const double unit[] = {0x1p-8, 0x1p-11, 0x1p-24, 0x1p-24};
    const slot_bound *b = &s->bound;
    const double own = b->rel_l2 > 0 ? b->rel_l2 : b->relative + (rms > 0 ? b->absolute * scale / rms : 0);
    return own + b->units * unit[s->dtype] * (0.25 + 2 / sqrt((double)n));
}

static bool judge_numbers(const runner *r, const train_case *c, const view *want, const view *got, const char *mode,
                          double *worst_rel_l2)
{
    const slot *s = want->s;
    const double rms = root_mean_square(want), scale = s->bound.scale > 0 ? s->bound.scale : rms;
    double squares = 0, worst = 0;
    size_t wrong = 0, worst_at = 0, n = 0;
    for (size_t i = 0; i < s->n; i++) {
        const bool written = !is_poison(want, i);
        if (written == is_poison(got, i))
            return case_fail(r, c, "%s%s: element [%zu] %s", s->name, mode, i,
                             written ? "still holds the NaN that it was filled with" : "is in a gap, but was written");
        if (!written)
            continue;
        const double x = element(want, i), y = element(got, i);
        double excess = 0; /* the difference over what it may be */
        if (!isfinite(x) || !isfinite(y)) {
            excess = isnan(x) ? isnan(y) ? 0 : INFINITY : x == y ? 0 : INFINITY;
        } else if (x != y) {
            const double allowed =
                s->bound.units * unit_of(s->dtype, x) + s->bound.relative * fabs(x) + s->bound.absolute * scale;
            excess = fabs(y - x) / allowed;
            squares += (y - x) * (y - x);
        }
        n += isfinite(x);
        wrong += !(excess <= 1);
        if (excess > worst) {
            worst = excess;
            worst_at = i;
        }
    }
    if (wrong > 0)
        return case_fail(r, c, "%s%s: %zu of %zu elements are wrong, the worst is [%zu]: %.9g, not %.9g", s->name, mode,
                         wrong, s->n, worst_at, element(got, worst_at), element(want, worst_at));
    if (n == 0)
        return true;
    const double rel_l2 = squares > 0 ? sqrt(squares / (double)n) / rms : 0;
    const double allowed = allowed_rel_l2(s, rms, scale, n);
    if (rms > 0 && !(rel_l2 <= allowed))
        return case_fail(r, c, "%s%s: rel_l2 %.2e, allowed are %.2e", s->name, mode, rel_l2, allowed);
    if (rms > 0)
        *worst_rel_l2 = fmax(*worst_rel_l2, rel_l2);
    return true;
}

static bool judge_bytes(const runner *r, const train_case *c, const slot *s, const unsigned char *got, const char *mode)
{
    size_t i = 0;
    while (i < s->n && got[i] == s->want[i])
        i++;
    return i == s->n ||
           case_fail(r, c, "%s%s: byte [%zu] of %zu is %02x, not %02x", s->name, mode, i, s->n, got[i], s->want[i]);
}

/* ---- the optimizer's state ---- */

static bool near(double want, double got)
{
    return isfinite(want) ? fabs(got - want) <= 3e-6 * fabs(want) : !isfinite(got);
}

static bool judge_state(const runner *r, const train_case *c, const slot *s, size_t at, const unsigned char *got_bytes,
                        const char *mode)
{
    sb_optimizer_state want, got;
    memcpy(&want, s->want + at * STATE_BYTES, sizeof want);
    memcpy(&got, got_bytes + at * STATE_BYTES, sizeof got);
    const struct {
        const char *name;
        double want, got;
        bool exact;
    } fields[] = {
        {"step", (double)want.step, (double)got.step, true},
        {"skipped", (double)want.skipped, (double)got.skipped, true},
        {"lr", want.lr, got.lr, true},
        {"loss_scale", want.loss_scale, got.loss_scale, true},
        {"correction1", want.correction1, got.correction1, false},
        {"correction2", want.correction2, got.correction2, false},
        {"grad_scale", want.grad_scale, got.grad_scale, true},
        {"grad_factor", want.grad_factor, got.grad_factor, false},
        {"grad_norm", want.grad_norm, got.grad_norm, false},
        {"found_nonfinite", want.found_nonfinite != 0, got.found_nonfinite != 0, true},
        {"skip", want.skip != 0, got.skip != 0, true},
        {"good_steps", want.good_steps, got.good_steps, true},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].exact ? fields[i].got != fields[i].want : !near(fields[i].want, fields[i].got))
            return case_fail(r, c, "%s[%zu].%s%s is %.9g, not %.9g", s->name, at, fields[i].name, mode, fields[i].got,
                             fields[i].want);
    return true;
}

/* ---- a case ---- */

bool case_judge(const runner *r, const train_case *c, unsigned char *const got[], const char *mode, double *worst)
{
    bool ok = true;
    for (int i = 0; i < c->slot_count; i++) {
        const slot *s = &c->slots[i];
        if (s->role == SLOT_IN)
            continue;
        if (s->content == SLOT_STATES) {
            for (size_t at = 0; at < s->n; at++)
                ok = judge_state(r, c, s, at, got[i], mode) && ok;
            continue;
        }
        if (s->content == SLOT_BYTES) {
            ok = judge_bytes(r, c, s, got[i], mode) && ok;
            continue;
        }
        view want = {s, s->want, NULL}, left = {s, got[i], NULL};
        if (s->content == SLOT_REMAINDERS) {
            want.high = c->slots[i - 1].want;
            left.high = got[i - 1];
        }
        ok = judge_numbers(r, c, &want, &left, mode, worst) && ok;
    }
    return ok;
}
