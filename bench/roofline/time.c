/* SPDX-License-Identifier: MIT */
/* How a status becomes the row's, and a time its columns; see roofline.h. */
#include "bench/roofline/roofline.h"

#include "common/session/status.h"

bool roofline_ok(roofline *r, sb_status status)
{
    return status_ok(r->w, status, NULL);
}

static void set(roofline *r, const char *column, double value)
{
    if (row_has(r->w, column))
        row_real(r->w, column, value);
}

/* Products and copies of this GPU, in the steady state. */
static void sustain(roofline *r, const measure_how *how, bool (*fn)(void *arg), void *arg, roofline_amount amount)
{
    double ms;
    if (how->dev != r->s->dev || amount.flops + amount.bytes == 0)
        return;
    set(r, "sustain_s", r->s->sustain_s);
    if (measure_sustained(r->s, r->w, "sustained", how, fn, arg, &ms) && amount.bytes > 0)
        set(r, "sustained_gb_s", amount.bytes / (ms * 1e6));
}

bool roofline_time(roofline *r, const measure_how *asked, bool (*fn)(void *arg), void *arg, roofline_amount amount,
                   double *ms)
{
    measure_how how = *asked;
    how.flops = amount.flops;
    if (!measure_with(r->s, r->w, "time", &how, fn, arg, ms))
        return false;
    if (amount.flops > 0)
        set(r, "tflops", amount.flops / (*ms * 1e9));
    if (amount.bytes > 0)
        set(r, "gb_s", amount.bytes / (*ms * 1e6));
    sustain(r, &how, fn, arg, amount);
    return true;
}
