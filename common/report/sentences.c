/* SPDX-License-Identifier: MIT */
/* Sentences made from numbers; see sentences.h. */
#include "common/report/sentences.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/report/section.h"

static bool ok(const table *t, size_t row)
{
    return row != NO_ROW && strcmp(table_text(t, row, "status"), "ok") == 0;
}

/* ---- attention ---- */

typedef struct extremes {
    size_t n, above, low, high; /* of those with a number; above 1; rows of the least and the largest */
} extremes;

static extremes extremes_of(const table *t, const char *column)
{
    extremes e = {.low = NO_ROW, .high = NO_ROW};
    for (size_t i = 0; i < t->n; i++) {
        const double x = table_real(t, i, column);
        if (!ok(t, i) || !isfinite(x))
            continue;
        e.n++;
        e.above += x > 1;
        e.low = e.low == NO_ROW || x < table_real(t, e.low, column) ? i : e.low;
        e.high = e.high == NO_ROW || x > table_real(t, e.high, column) ? i : e.high;
    }
    return e;
}

static void add_speedups(document *doc, const table *flash, const char *column, const char *what)
{
    const extremes e = extremes_of(flash, column);
    doc_more(doc, "%zu of %zu %s (%s times as fast at least, at S %s, D %s; %s at most, at S %s, D %s)", e.above, e.n,
             what, number(table_real(flash, e.low, column)), table_text(flash, e.low, "seq"),
             table_text(flash, e.low, "head_dim"), number(table_real(flash, e.high, column)),
             table_text(flash, e.high, "seq"), table_text(flash, e.high, "head_dim"));
}

void say_flash(document *doc, const table *of_dtype)
{
    table *flash = table_where(of_dtype, "variant", "flash", NULL);
    const bool forward = extremes_of(flash, "speedup_fwd").n, backward = extremes_of(flash, "speedup_bwd").n;
    if (forward || backward) {
        doc_paragraph(doc, "Flash takes less time than unfused in ");
        if (forward)
            add_speedups(doc, flash, "speedup_fwd", "forwards");
        if (backward) {
            doc_more(doc, "%s", forward ? " and in " : "");
            add_speedups(doc, flash, "speedup_bwd", "backwards");
        }
        doc_more(doc, ".");
    }
    table_free(flash);
}

static double seq_of(const table *t, size_t row)
{
    return table_real(t, row, "seq");
}

/* The longest S, and of it the largest D, at which both variants went well; or the longest below a limit at a given D. */
static size_t longest(const table *a, const table *b, double below, const char *dim)
{
    size_t best = NO_ROW;
    for (size_t i = 0; i < a->n; i++) {
        const char *d = table_text(a, i, "head_dim");
        if (!ok(a, i) || !(seq_of(a, i) < below) || (dim && strcmp(dim, d) != 0) ||
            !ok(b, table_find(b, "seq", table_text(a, i, "seq"), "head_dim", d, NULL)))
            continue;
        if (best == NO_ROW || seq_of(a, i) > seq_of(a, best) ||
            (seq_of(a, i) == seq_of(a, best) && table_real(a, i, "head_dim") > table_real(a, best, "head_dim")))
            best = i;
    }
    return best;
}

void say_attention(document *doc, const table *of_dtype)
{
    table *unfused = table_where(of_dtype, "variant", "unfused", NULL),
          *flash = table_where(of_dtype, "variant", "flash", NULL);
    const size_t u = longest(unfused, flash, INFINITY, NULL);
    if (u != NO_ROW) {
        const char *seq = table_text(unfused, u, "seq"), *dim = table_text(unfused, u, "head_dim");
        const size_t f = table_find(flash, "seq", seq, "head_dim", dim, NULL);
        const size_t shorter = longest(unfused, flash, seq_of(unfused, u), dim);
        size_t oom = 0;
        for (size_t i = 0; i < unfused->n; i++)
            oom += strcmp(table_text(unfused, i, "status"), "oom") == 0;
        doc_paragraph(
            doc,
            "At S %s, D %s, unfused holds %s times as much as flash before the backward, and its forward "
            "takes %s times as long.",
            seq, dim,
            number(table_real(unfused, u, "mem_before_bwd_bytes") / table_real(flash, f, "mem_before_bwd_bytes")),
            number(table_real(unfused, u, "fwd_ms") / table_real(flash, f, "fwd_ms")));
        if (shorter != NO_ROW)
            doc_more(
                doc, " From S %s to %s, unfused holds %s times as much and takes %s times as long, flash %s and %s.",
                table_text(unfused, shorter, "seq"), seq,
                number(table_real(unfused, u, "mem_before_bwd_bytes") /
                       table_real(unfused, shorter, "mem_before_bwd_bytes")),
                number(table_real(unfused, u, "fwd_ms") / table_real(unfused, shorter, "fwd_ms")),
                number(table_real(flash, f, "mem_before_bwd_bytes") /
                       table_real(flash,
                                  table_find(flash, "seq", table_text(unfused, shorter, "seq"), "head_dim", dim, NULL),
                                  "mem_before_bwd_bytes")),
                number(table_real(flash, f, "fwd_ms") /
                       table_real(flash,
                                  table_find(flash, "seq", table_text(unfused, shorter, "seq"), "head_dim", dim, NULL),
                                  "fwd_ms")));
        if (oom)
            doc_more(doc, " Unfused is out of memory in %zu of %zu cases.", oom, unfused->n);
    }
    table_free(unfused);
    table_free(flash);
}

/* ---- memory ---- */

void say_memory(document *doc, const table *of_precision)
{
    table *step = table_where(of_precision, "mode", "train-step", "status", "ok", NULL);
    size_t low = NO_ROW, high = NO_ROW;
    for (size_t i = 0; i < step->n; i++) {
        low = low == NO_ROW || seq_of(step, i) < seq_of(step, low) ? i : low;
        high = high == NO_ROW || seq_of(step, i) > seq_of(step, high) ? i : high;
    }
    if (high != NO_ROW && isfinite(table_real(step, high, "peak_bytes"))) {
        const double peak = table_real(step, high, "peak_bytes");
        const char *seq = table_text(step, high, "seq");
        const size_t forward = table_find(of_precision, "mode", "forward", "seq", seq, "status", "ok", NULL);
        doc_paragraph(doc, "At S %s a train step peaks at %s", seq, number_unit(peak, "bytes"));
        if (high != low)
            doc_more(doc, ", %s times as much as at S %s", number(peak / table_real(step, low, "peak_bytes")),
                     table_text(step, low, "seq"));
        doc_more(doc, "; activations are %s %% of it.",
                 number(100 * table_real(step, high, "activation_bytes") / peak));
        if (forward != NO_ROW)
            doc_more(doc, " Forward alone peaks at %s there.",
                     number_unit(table_real(of_precision, forward, "peak_bytes"), "bytes"));
    }
    table_free(step);
}

/* ---- collectives ---- */

static const char *time_text(double ms)
{
    return ms < 1 ? number_unit(1e3 * ms, "us") : number_unit(ms, "ms");
}

void say_collective(document *doc, const table *of_op_and_dtype)
{
    static const double near_most = 0.9;
    values ranks = table_values(of_op_and_dtype, "ranks");
    table *t = table_where(of_op_and_dtype, "ranks", ranks.n ? ranks.v[ranks.n - 1] : "", "mode", "eager", "status",
                           "ok", NULL);
    size_t low = NO_ROW, high = NO_ROW, most = NO_ROW, near = NO_ROW;
    for (size_t i = 0; i < t->n; i++) {
        const double bytes = table_real(t, i, "bytes"), rate = table_real(t, i, "busbw_gb_s");
        if (!isfinite(rate))
            continue;
        low = low == NO_ROW || bytes < table_real(t, low, "bytes") ? i : low;
        high = high == NO_ROW || bytes > table_real(t, high, "bytes") ? i : high;
        most = most == NO_ROW || rate > table_real(t, most, "busbw_gb_s") ? i : most;
    }
    for (size_t i = 0; i < t->n && most != NO_ROW; i++)
        if (table_real(t, i, "busbw_gb_s") >= near_most * table_real(t, most, "busbw_gb_s") &&
            (near == NO_ROW || table_real(t, i, "bytes") < table_real(t, near, "bytes")))
            near = i;
    if (high != NO_ROW && high != low)
        doc_paragraph(doc,
                      "On %s ranks, called eagerly, %s takes %s and %s %s; the bus reaches %s at most, and 90 %% of "
                      "that at %s and more.",
                      ranks.v[ranks.n - 1], table_text(t, low, "size"), time_text(table_real(t, low, "median_ms")),
                      table_text(t, high, "size"), time_text(table_real(t, high, "median_ms")),
                      number_unit(table_real(t, most, "busbw_gb_s"), "GB/s"), table_text(t, near, "size"));
    table_free(t);
    values_free(&ranks);
}

/* ---- warm-up ---- */

/* The row of the same case with the most warm-up. */
static size_t warmest(const table *t, size_t row, bool (*same)(const table *t, size_t a, size_t b))
{
    size_t best = row;
    for (size_t i = 0; i < t->n; i++)
        if (same(t, row, i) && table_real(t, i, "warmup") > table_real(t, best, "warmup"))
            best = i;
    return best;
}

void say_warmup(document *doc, const table *t, bool (*same)(const table *t, size_t a, size_t b))
{
    values steps = table_values(t, "warmup");
    bool begun = false;
    for (size_t w = 0; w < steps.n; w++) {
        double low = NAN, high = NAN;
        for (size_t i = 0; i < t->n; i++) {
            const size_t warm = warmest(t, i, same);
            const double ratio = table_real(t, i, "host_step_mean_ms") / table_real(t, warm, "host_step_mean_ms");
            if (warm == i || strcmp(table_text(t, i, "warmup"), steps.v[w]) != 0 || !isfinite(ratio))
                continue;
            low = fmin(low, ratio);
            high = fmax(high, ratio);
        }
        if (!isfinite(low))
            continue;
        if (!begun)
            doc_paragraph(doc, "Against the most warm-up of each case, the mean step by the host's clock takes");
        doc_more(doc, "%s %s%s%s times as long after %s %s", begun ? "," : "", number(low), high > low ? " to " : "",
                 high > low ? number(high) : "", steps.v[w], strcmp(steps.v[w], "1") == 0 ? "step" : "steps");
        begun = true;
    }
    if (begun)
        doc_more(doc, ".");
    values_free(&steps);
}
