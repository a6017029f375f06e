/* SPDX-License-Identifier: MIT */
/* The problem of the profiler: what a recorded forward, step and attention say, each by its newest profile. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/sections/course/course.h"
#include "common/report/sections/course/rows.h"

/* The value of a parameter in the text of a case, "size=xl batch=4 ...". Valid until 8 further calls. */
static const char *case_value(const csv *c, size_t row, const char *name)
{
    enum { TEXTS = 8, BYTES = 32 };
    static char texts[TEXTS][BYTES];
    static unsigned next;
    char *text = texts[next++ % TEXTS];
    const size_t length = strlen(name);
    for (const char *at = csv_cell(c, row, "case"); at && *at; at += *at == ' ') {
        const size_t word = strcspn(at, " ");
        if (word > length && strncmp(at, name, length) == 0 && at[length] == '=') {
            snprintf(text, BYTES, "%.*s", (int)(word - length - 1), at + length + 1);
            return text;
        }
        at += word;
    }
    return "";
}

/* Whether a row is of the profile that a row of totals.csv is of, on its rank. */
static bool belongs(const csv *c, size_t i, const csv *totals, size_t row)
{
    static const char *const keys[] = {"bench", "case", "measurement", "run_id", "rank"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        if (!cell_is(c, i, keys[k], csv_cell(totals, row, keys[k])))
            return false;
    return true;
}

static size_t row_of(const csv *c, const csv *totals, size_t row, const char *column, const char *value)
{
    for (size_t i = 0; c && i < c->rows; i++)
        if (belongs(c, i, totals, row) && cell_is(c, i, column, value))
            return i;
    return NO_ROW;
}

static double real(const csv *c, size_t row, const char *column)
{
    return row == NO_ROW ? NAN : csv_real(c, row, column);
}

/* The newest profile of a size in a mode: a file only grows. The plainest case is meant, a step that is one graph. */
static size_t newest(const csv *totals, const char *size, const char *mode)
{
    for (size_t i = totals->rows; i-- > 0;)
        if (cell_is(totals, i, "bench", "bench_transformer") && cell_is(totals, i, "measurement", "steps") &&
            cell_is(totals, i, "rank", "0") && !cell_is(totals, i, "variant", "none") &&
            strcmp(case_value(totals, i, "size"), size) == 0 && strcmp(case_value(totals, i, "mode"), mode) == 0 &&
            strcmp(case_value(totals, i, "recompute"), "none") == 0 &&
            strcmp(case_value(totals, i, "layers"), "0") == 0 && strcmp(case_value(totals, i, "d_model"), "0") == 0)
            return i;
    return NO_ROW;
}

static const char *const sizes[] = {"tiny", "small", "medium", "large", "xl", "2.7b"};
enum { SIZES = sizeof sizes / sizeof *sizes };
static const char *const modes[] = {"forward", "train-step"};

/* ---- (a) the profiler's time and ours ---- */

/* Events around the same steps; and around those between them that were not recorded. */
static void total_times(document *doc, const csv *totals)
{
    bool begun = false;
    double worst = 0, least = INFINITY, most = 0;
    for (size_t m = 0; m < 2; m++)
        for (size_t s = 0; s < SIZES; s++) {
            const size_t row = newest(totals, sizes[s], modes[m]);
            if (row == NO_ROW)
                continue;
            if (!begun) {
                doc_paragraph(doc, "(a) A step by the profiler, by events, and without a recording");
                doc_table(doc);
                doc_columns(doc, DOC_TEXT, "step", "size", NULL);
                doc_columns(doc, DOC_NUMBER, "context", NULL);
                doc_columns(doc, DOC_TEXT, "precision", NULL);
                doc_columns(doc, DOC_NUMBER, "profiler ms", "events ms", "profiler / events", "not recorded ms",
                            "recorded / not", NULL);
            }
            begun = true;
            const double profiler = real(totals, row, "window_ms"), recorded = real(totals, row, "recorded_event_ms"),
                         plain = real(totals, row, "event_ms");
            worst = fmax(worst, fabs(profiler / recorded - 1));
            least = fmin(least, recorded / plain);
            most = fmax(most, recorded / plain);
            doc_row(doc, modes[m], sizes[s], case_value(totals, row, "seq"), case_value(totals, row, "precision"),
                    NULL);
            doc_cells(doc, number(profiler), number(recorded), number(profiler / recorded), number(plain),
                      number(recorded / plain), NULL);
        }
    if (begun)
        doc_paragraph(doc,
                      "Of the same steps the two %s: they are at most %s %% apart. A recorded step takes %s times as "
                      "long as one that is not recorded.",
                      worst < 0.05 ? "agree" : "differ", number(100 * worst), range_text(least, most));
}

/* ---- (b) the kernel that takes most ---- */

typedef struct part { /* of a step: ranges that begin with `only`, and none that begin with `but` */
    const char *what, *only, *but;
} part;

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

typedef struct top {
    size_t row; /* of one use of the kernel */
    double ms, calls, all_ms;
} top;

/* The kernel with most time in a part of a profile, over all ranges that use it. */
static top top_kernel(const csv *c, const csv *totals, size_t profile, const part *p)
{
    top best = {.row = NO_ROW};
    bool *in = xcalloc(c->rows + 1, sizeof *in);
    for (size_t i = 0; i < c->rows; i++)
        in[i] = belongs(c, i, totals, profile) && begins(csv_cell(c, i, "range"), p->only) &&
                !(p->but && begins(csv_cell(c, i, "range"), p->but));
    for (size_t i = 0; i < c->rows; i++) {
        double ms = 0, calls = 0;
        for (size_t k = i; in[i] && k < c->rows; k++)
            if (in[k] && cell_is(c, k, "kernel", csv_cell(c, i, "kernel"))) {
                ms += csv_real(c, k, "total_ms");
                calls += csv_real(c, k, "calls");
            }
        if (ms > best.ms) {
            best.row = i;
            best.ms = ms;
            best.calls = calls;
        }
        best.all_ms += in[i] ? csv_real(c, i, "total_ms") : 0;
    }
    free(in);
    return best;
}

/* Products are told apart by their symbol, without what a template adds to it; all others by their op. */
static const char *kernel_name(const csv *c, size_t row)
{
    if (!cell_is(c, row, "name", "gemm"))
        return csv_cell(c, row, "op");
    const char *symbol = csv_cell(c, row, "kernel");
    if (!begins(symbol, "_ZN"))
        return code("%s", symbol);
    char *rest;
    const char *at = symbol + strlen("_ZN"), *name = symbol;
    int length = (int)strlen(symbol);
    for (long n; (n = strtol(at, &rest, 10)) > 0 && n <= (long)strlen(rest); at = rest + n) {
        name = rest;
        length = (int)n;
    }
    return code("%.*s", length, name);
}

static void top_kernels(document *doc, const csv *totals, const csv *c)
{
    static const part parts[] = {
        {"forward", "forward", NULL}, {"forward and backward", "", "optimizer"}, {"full step", "", NULL}};
    bool begun = false;
    for (size_t s = 0; c && s < SIZES; s++) {
        const size_t row = newest(totals, sizes[s], "train-step");
        size_t first = NO_ROW;
        for (size_t k = 0; row != NO_ROW && k < sizeof parts / sizeof *parts; k++) {
            const top t = top_kernel(c, totals, row, &parts[k]);
            if (t.row == NO_ROW)
                continue;
            if (!begun) {
                doc_paragraph(doc, "(b) The kernel with most time in each part of a train step");
                doc_table(doc);
                doc_columns(doc, DOC_TEXT, "size", "part", "kernel", NULL);
                doc_columns(doc, DOC_NUMBER, "calls", "ms", "share of kernels %", NULL);
                doc_columns(doc, DOC_TEXT, "the forward's", NULL);
            }
            begun = true;
            first = k == 0 ? t.row : first;
            doc_row(doc, sizes[s], parts[k].what, kernel_name(c, t.row), NULL);
            doc_cell(doc, "%.0f", t.calls);
            doc_cells(doc, number(t.ms), number(100 * t.ms / t.all_ms), NULL);
            if (k > 0 && first != NO_ROW)
                doc_cell(doc, "%s", cell_is(c, t.row, "kernel", csv_cell(c, first, "kernel")) ? "yes" : "no");
            else
                doc_blank(doc);
        }
    }
}

/* ---- (c) what else takes time in the forward ---- */

/* The time of an op's kernels but for matrix products and what prepares them. */
static double op_ms(const csv *c, const csv *totals, size_t profile, const char *op)
{
    double ms = 0;
    for (size_t i = 0; i < c->rows; i++)
        if (belongs(c, i, totals, profile) && cell_is(c, i, "op", op) && !cell_is(c, i, "name", "gemm") &&
            !cell_is(c, i, "name", "memset"))
            ms += csv_real(c, i, "total_ms");
    return ms;
}

/* The op that takes most of what takes less than `below`; NULL when there is none. */
static const char *next_op(const csv *c, const csv *totals, size_t profile, double below)
{
    const char *op = NULL;
    double most = 0;
    for (size_t i = 0; i < c->rows; i++) {
        const double ms = belongs(c, i, totals, profile) ? op_ms(c, totals, profile, csv_cell(c, i, "op")) : 0;
        if (ms < below && ms > most) {
            most = ms;
            op = csv_cell(c, i, "op");
        }
    }
    return op;
}

static void other_kernels(document *doc, const csv *totals, const csv *c)
{
    bool begun = false;
    for (size_t s = 0; c && s < SIZES; s++) {
        const size_t row = newest(totals, sizes[s], "forward");
        const char *separator = ":";
        const double all = real(totals, row, "kernel_ms");
        double ms = INFINITY;
        for (const char *op; row != NO_ROW && (op = next_op(c, totals, row, ms));) {
            ms = op_ms(c, totals, row, op);
            if (ms < 0.01 * all)
                break;
            if (!begun)
                doc_paragraph(doc, "(c) Besides matrix products, these take 1 %% or more of a forward's kernels.");
            if (*separator == ':')
                doc_more(doc, " %s", sizes[s]);
            doc_more(doc, "%s %s %.1f %%", separator, op, 100 * ms / all);
            begun = true;
            separator = ",";
        }
        if (*separator == ',')
            doc_more(doc, ".");
    }
}

/* ---- (d) the share of matrix products ---- */

static void product_shares(document *doc, const csv *totals, const csv *c)
{
    bool begun = false, falls = true, rises = true;
    for (size_t s = 0; s < SIZES; s++) {
        const size_t forward = newest(totals, sizes[s], "forward"), step = newest(totals, sizes[s], "train-step");
        const size_t f = forward == NO_ROW ? NO_ROW : row_of(c, totals, forward, "mode", "forward");
        const size_t t = step == NO_ROW ? NO_ROW : row_of(c, totals, step, "mode", "train-step");
        if (f == NO_ROW || t == NO_ROW)
            continue;
        if (!begun) {
            doc_paragraph(doc, "(d) Shares of the kernels' time");
            doc_table(doc);
            doc_columns(doc, DOC_TEXT, "size", NULL);
            doc_columns(doc, DOC_NUMBER, "products, forward %", "products, train step %", "other, forward %",
                        "other, train step %", NULL);
        }
        begun = true;
        falls = falls && real(c, t, "gemm_pct") < real(c, f, "gemm_pct");
        rises = rises && real(c, t, "gemm_pct") > real(c, f, "gemm_pct");
        doc_row(doc, sizes[s], number(real(c, f, "gemm_pct")), number(real(c, t, "gemm_pct")),
                number(real(c, f, "other_pct")), number(real(c, t, "other_pct")), NULL);
    }
    if (begun)
        doc_paragraph(doc,
                      "From a forward to a train step the share of matrix products %s. Attention in one kernel counts "
                      "as neither, since its products are in it.",
                      falls   ? "falls"
                      : rises ? "rises"
                              : "falls for some sizes and rises for others");
}

/* ---- (e) softmax and the products of attention ---- */

static void softmax(document *doc, const csv *totals, const csv *c)
{
    size_t best = NO_ROW;
    for (size_t i = totals->rows; i-- > 0;)
        if (cell_is(totals, i, "bench", "bench_attention") && cell_is(totals, i, "variant", "unfused") &&
            cell_is(totals, i, "measurement", "fwd") && row_of(c, totals, i, "form", "parts") != NO_ROW &&
            (best == NO_ROW ||
             strtod(case_value(totals, i, "seq"), NULL) > strtod(case_value(totals, best, "seq"), NULL)))
            best = i;
    if (best == NO_ROW)
        return;
    const size_t r = row_of(c, totals, best, "form", "parts");
    const double time = real(c, r, "time_ratio"), flops = real(c, r, "flop_ratio");
    doc_paragraph(doc,
                  "(e) In unfused attention (%s, S %s, D %s) the scores take %s ms, the mask %s ms, softmax %s ms and "
                  "the product with the values %s ms.",
                  case_value(totals, best, "dtype"), case_value(totals, best, "seq"),
                  case_value(totals, best, "head_dim"), number(real(c, r, "scores_ms")), number(real(c, r, "mask_ms")),
                  number(real(c, r, "softmax_ms")), number(real(c, r, "value_ms")));
    doc_more(doc, " Softmax takes %s times the time of both products and %s times their FLOPs%s.", number(time),
             number(flops), time > 2 * flops ? ": it is bound by the bytes it moves, not by its arithmetic" : "");
}

static void nsys_profile(document *doc, const char *dir)
{
    csv *totals = open_peer(dir, "profile/totals.csv"), *kernels = open_peer(dir, "profile/kernels.csv");
    csv *products = open_peer(dir, "profile/products.csv"), *parts = open_peer(dir, "profile/softmax.csv");
    if (totals) {
        total_times(doc, totals);
        top_kernels(doc, totals, kernels);
        other_kernels(doc, totals, kernels);
        product_shares(doc, totals, products);
        softmax(doc, totals, parts);
    }
    csv_free(parts);
    csv_free(products);
    csv_free(kernels);
    csv_free(totals);
}

const course_problem course_profile[] = {
    {"nsys_profile", "2025, 2026", "Profiles: where the time of a step goes", nsys_profile}, {.name = NULL}};
