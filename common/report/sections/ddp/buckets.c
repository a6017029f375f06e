/* SPDX-License-Identifier: MIT */
/* Buckets in the report: measured exposed time against what two models of buckets predict, and whether the bucket that
 * the handout's model calls best can be told apart from the one that measured best. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/formulas/exposed.h"
#include "common/report/section.h"
#include "common/report/sections/ddp/ddp.h"

enum { MAX_SIZES = 64 };

/* Rows of a group with the same options, in the order of bucket sizes. */
typedef struct sweep {
    const ddp_entry *e[MAX_SIZES];
    size_t n, best; /* best: the least exposed */
} sweep;

static sweep sweep_of(const ddp_rows *r, size_t first, size_t end, const char *how)
{
    sweep s = {.n = 0};
    for (size_t i = first; i < end && s.n < MAX_SIZES; i++) {
        const ddp_entry *e = &r->all[i];
        if (!ddp_is(e, "bucketed") || strcmp(e->how, how) != 0 || !isfinite(e->exposed))
            continue;
        s.e[s.n++] = e;
        if (e->exposed < s.e[s.best]->exposed)
            s.best = s.n - 1;
    }
    return s;
}

static double size_of(const ddp_entry *e)
{
    return ddp_real(e, "bucket_mb");
}

/* ---- the models ---- */

/* The handout's, sqrt(s o w). Rows of one sweep have one fit, unless they are of several runs: then the newest counts. */
static const ddp_entry *fitted(const sweep *s)
{
    const ddp_entry *newest = NULL;
    for (size_t i = 0; i < s->n; i++)
        if (isfinite(ddp_real(s->e[i], "predicted_best_mb")) &&
            (!newest || strcmp(ddp_text(s->e[i], "utc"), ddp_text(newest, "utc")) > 0))
            newest = s->e[i];
    return newest;
}

/* Where kappa comes from: the row in which the model with contention predicts nothing. NULL unless there is one alone. */
static const ddp_entry *calibrated(const sweep *s)
{
    const ddp_entry *found = NULL;
    size_t count = 0;
    for (size_t i = 0; i < s->n; i++)
        if (!isfinite(ddp_real(s->e[i], "predicted_contention_ms")) && isfinite(ddp_real(s->e[i], "kappa"))) {
            found = s->e[i];
            count++;
        }
    return count == 1 ? found : NULL;
}

static const ddp_entry *nearest(const sweep *s, double mb)
{
    const ddp_entry *best = s->e[0];
    for (size_t i = 1; i < s->n; i++)
        if (fabs(log(size_of(s->e[i]) / mb)) < fabs(log(size_of(best) / mb)))
            best = s->e[i];
    return best;
}

/* Milliseconds; the time alone is predicted, or in older rows measured. */
static bucket_load load_of(const ddp_entry *e)
{
    const double predicted = ddp_real(e, "predicted_alone_ms"), n = ddp_real(e, "buckets");
    bucket_load l = {.alone = isfinite(predicted) ? predicted : ddp_real(e, "comm_alone_ms"),
                     .window = ddp_real(e, "compute_ms") - ddp_real(e, "fwd_ms")};
    l.last = l.alone / n;
    if (strcmp(ddp_text(e, "update"), "after") == 0)
        l.window -= ddp_real(e, "opt_alone_ms");
    else if (strcmp(ddp_text(e, "update"), "buckets") == 0)
        l.last = bucket_last_exposed(l.last, ddp_real(e, "opt_alone_ms"), n);
    return l;
}

/* The exposed time of size i from the contention of the sweep's first size; NAN for that size, and in another run. */
static double predicted_exposed(const sweep *s, size_t i)
{
    const bucket_load first = load_of(s->e[0]), load = load_of(s->e[i]);
    const bucket_contention c = bucket_contention_of(&first, s->e[0]->exposed, ddp_real(s->e[0], "tail_ms"));
    return i && ddp_beside(s->e[0], s->e[i]) ? bucket_exposed(&load, &c) : NAN;
}

static double off_pct(const sweep *s, size_t i)
{
    return 100 * (predicted_exposed(s, i) / s->e[i]->exposed - 1);
}

/* ---- text ---- */

static void add_error(document *doc, const sweep *s)
{
    size_t worst = 0, count = 0;
    for (size_t i = 1; i < s->n; i++)
        if (isfinite(off_pct(s, i))) {
            worst = !worst || fabs(off_pct(s, i)) > fabs(off_pct(s, worst)) ? i : worst;
            count++;
        }
    if (worst)
        doc_more(
            doc,
            "The contention of the %.6g MB row predicts the exposed time of %zu other %s within %s %% (%.6g MB: %s "
            "ms for %s).\n",
            size_of(s->e[0]), count, count == 1 ? "size" : "sizes", number(fabs(off_pct(s, worst))),
            size_of(s->e[worst]), precise(predicted_exposed(s, worst)), precise(s->e[worst]->exposed));
}

static void add_tied(document *doc, const sweep *s)
{
    size_t tied = 0;
    for (size_t i = 0; i < s->n; i++)
        if (i != s->best && !ddp_apart(s->e[i], s->e[s->best]))
            doc_more(doc, "%s%.6g", tied++ ? ", " : "; the intervals of these sizes meet its own: ", size_of(s->e[i]));
    doc_more(doc, "%s. ",
             tied == s->n - 1 ? " MB, which is every other size: this run finds no best one"
             : tied           ? " MB"
                              : "; its interval meets that of no other size");
}

static void add_loss(document *doc, const sweep *s, double predicted)
{
    const ddp_entry *best = s->e[s->best], *used = nearest(s, predicted);
    const double loss = used->exposed - best->exposed, least = size_of(s->e[0]), most = size_of(s->e[s->n - 1]);
    if (predicted < least || predicted > most)
        doc_more(doc, "The predicted size is outside the range of those measured. ");
    if (used == best)
        doc_more(doc, "The best size is also the measured one nearest to the prediction: using the prediction loses "
                      "nothing here.");
    else if (!ddp_beside(used, best))
        doc_more(doc, "The measured size nearest to the predicted one, %.6g MB, is of another run: it is not compared.",
                 size_of(used));
    else
        doc_more(doc,
                 "The measured size nearest to the predicted one, %.6g MB, exposes %s ms more (%s %% of the step), and "
                 "the intervals %s.",
                 size_of(used), precise(loss), number(100 * loss / ddp_real(best, "step_ms")),
                 ddp_apart(used, best) ? "separate" : "meet");
}

static void add_verdict(document *doc, const sweep *s)
{
    const ddp_entry *fit = fitted(s), *kappa = calibrated(s), *best = s->e[s->best];
    doc_paragraph(doc, "%s", "");
    if (fit) {
        const double predicted = ddp_real(fit, "predicted_best_mb"),
                     contention = kappa ? ddp_real(kappa, "kappa") : NAN;
        doc_more(doc,
                 "All-reduces of this run take o + bytes / w with o %s us and w %s GB/s (off by up to %s %%), so that "
                 "the handout's best\nbucket, sqrt(s o w), is %s MB",
                 number(ddp_real(fit, "o_us")), number(ddp_real(fit, "w_gb_s")),
                 number(ddp_real(fit, "fit_residual_pct")), number(predicted));
        if (contention > 0)
            doc_more(doc, "; with contention kappa = %s of the %.6g MB row, sqrt(kappa s o w) is %s MB",
                     number(contention), size_of(kappa), number(predicted * sqrt(contention)));
        else if (kappa)
            doc_more(doc, "; the %.6g MB row shows no contention (kappa %s), and that model no best bucket",
                     size_of(kappa), number(contention));
        doc_more(doc, ".\n");
    }
    add_error(doc, s);
    doc_more(doc, "Measured best: %.6g MB with %s ms exposed", size_of(best), with_interval(best));
    add_tied(doc, s);
    if (fit)
        add_loss(doc, s, ddp_real(fit, "predicted_best_mb"));
    else
        doc_more(doc, "No model was fitted: o, the cost of a call, did not come out above 0.");
}

static void sweep_table(document *doc, const sweep *s)
{
    doc_table(doc);
    doc_columns(doc, DOC_NUMBER, "MB", "calls", "largest MiB", "step ms", "exposed ms [95 %]", "tail ms",
                "contention ms", "handout's model ms", "with contention ms", "predicted exposed ms", "off by %", NULL);
    for (size_t i = 0; i < s->n; i++) {
        const ddp_entry *e = s->e[i];
        const bool best = i == s->best;
        doc_row(doc, NULL);
        if (best)
            doc_cell(doc, "%s", strong("%.6g", size_of(e)));
        else
            doc_cell(doc, "%.6g", size_of(e));
        doc_cells(doc, ddp_text(e, "buckets"), number(ddp_real(e, "bucket_bytes") / MIB),
                  precise(ddp_real(e, "step_ms")), NULL);
        doc_cells(doc, best ? strong("%s", with_interval(e)) : with_interval(e), NULL);
        doc_cells(doc, precise(ddp_real(e, "tail_ms")), precise(ddp_real(e, "contention_ms")),
                  precise(ddp_real(e, "predicted_ms")), precise(ddp_real(e, "predicted_contention_ms")),
                  precise(predicted_exposed(s, i)), number(off_pct(s, i)), NULL);
    }
}

static bool said(const ddp_rows *r, size_t first, size_t i)
{
    for (size_t k = first; k < i; k++)
        if (ddp_is(&r->all[k], "bucketed") && strcmp(r->all[k].how, r->all[i].how) == 0)
            return true;
    return false;
}

void ddp_buckets(document *doc, const char *dir, const ddp_rows *r)
{
    document *part = doc_create("");
    for (size_t first = 0, end; first < r->n; first = end) {
        end = ddp_group_end(r, first);
        for (size_t i = first; i < end; i++) {
            if (!ddp_is(&r->all[i], "bucketed") || said(r, first, i))
                continue;
            const sweep s = sweep_of(r, first, end, r->all[i].how);
            if (s.n < 2)
                continue;
            char *title = ddp_group_title(s.e[0]);
            doc_paragraph(part, "%s", strong("%s%s%s", title, *s.e[0]->how ? ", " : "", s.e[0]->how));
            sweep_table(part, &s);
            add_verdict(part, &s);
            free(title);
        }
    }
    if (!doc_empty(part)) {
        doc_heading(doc, 3, "Buckets");
        doc_paragraph(
            doc,
            "MB are 2^20 bytes; a larger tensor is a bucket of its own. The handout's model says n calls of s "
            "bytes together cost\nn o + s / (n w): the last bucket, and what every call costs. With contention it "
            "is o + b / w + kappa (n o + s / w): the last\nbucket, and the share kappa of the collectives' time "
            "by which they slow compute down; kappa is measured in one row of a sweep\nand used in the others. Both "
            "take communication to end with the backward. The predicted exposed time does not: it is the larger\n"
            "of two, the slowed compute with the last bucket, and the stretched chain of collectives less the "
            "compute beside it. Both\nfactors come from the first row of a sweep.");
        figures(doc, dir, "ddp_buckets_");
    }
    doc_append(doc, part);
}
