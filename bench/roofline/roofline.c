/* SPDX-License-Identifier: MIT */
/* How a status becomes the row's, and a time its columns; see roofline.h. */
#include "bench/roofline/roofline.h"

bool roofline_ok(roofline *r, sb_status status)
{
    if (status == SB_OK)
        return true;
    const char *why = *sb_last_message() ? sb_last_message() : sb_status_name(status);
    row_status_set(r->w, status == SB_UNSUPPORTED ? ROW_SKIP : status == SB_NO_MEMORY ? ROW_OOM : ROW_FAIL, "%s", why);
    return false;
}

void roofline_time(roofline *r, const measure_how *how, bool (*fn)(void *arg), void *arg, roofline_amount amount)
{
    double ms;
    if (!measure_with(r->s, r->w, "time", how, fn, arg, &ms))
        return;
    if (amount.flops > 0)
        row_real(r->w, "tflops", amount.flops / (ms * 1e9));
    if (amount.bytes > 0)
        row_real(r->w, "gb_s", amount.bytes / (ms * 1e6));
}
