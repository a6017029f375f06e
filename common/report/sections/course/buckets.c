/* SPDX-License-Identifier: MIT */
/* Problems of gradients in buckets: which size is best, and what the handout's model makes of it. */
#include <math.h>
#include <stdlib.h>

#include "common/report/sections/course/course.h"
#include "common/report/sections/course/ranks.h"
#include "common/report/sections/course/rows.h"

static const char *const bucketed[] = {"bucketed", NULL};

static void bucketed_verified(document *doc, const char *dir)
{
    say_verified(doc, dir, "bench_ddp_bucketed.csv", bucketed);
}

enum { MAX_SIZES = 64 };

/* Rows with the bench's own options of the group that answers, in the order of sizes. */
typedef struct sweep {
    const ddp_entry *e[MAX_SIZES], *overlap; /* overlap: of the same group, or NULL */
    size_t n;
} sweep;

static sweep sweep_of(const ddp_rows *r)
{
    sweep s = {.n = 0};
    size_t first, end;
    if (!r || !course_group(r, bucketed, &first, &end))
        return s;
    s.overlap = ddp_best(r, first, end, "overlap", NULL);
    for (size_t i = first; i < end && s.n < MAX_SIZES; i++)
        if (ddp_is(&r->all[i], "bucketed") && !*r->all[i].how && isfinite(ddp_step_ms(&r->all[i])))
            s.e[s.n++] = &r->all[i];
    return s;
}

static const ddp_entry *quickest(const sweep *s)
{
    const ddp_entry *best = s->e[0];
    for (size_t i = 1; i < s->n; i++)
        best = ddp_step_ms(s->e[i]) < ddp_step_ms(best) ? s->e[i] : best;
    return best;
}

static const ddp_entry *slowest(const sweep *s)
{
    const ddp_entry *worst = s->e[0];
    for (size_t i = 1; i < s->n; i++)
        worst = ddp_step_ms(s->e[i]) > ddp_step_ms(worst) ? s->e[i] : worst;
    return worst;
}

/* What the order of the steps says of larger buckets. */
static const char *trend_of(const sweep *s)
{
    const ddp_entry *best = quickest(s);
    bool falls = true;
    for (size_t i = 1; i < s->n; i++)
        falls = falls && ddp_step_ms(s->e[i]) <= ddp_step_ms(s->e[i - 1]);
    return falls                    ? "Each larger size makes the step shorter"
           : best == s->e[0]        ? "The smallest size is best"
           : best == s->e[s->n - 1] ? "The largest size is best, but not every larger size makes the step shorter"
                                    : "The best size lies between the smallest and the largest";
}

static void add_tied(document *doc, const sweep *s, const ddp_entry *best)
{
    size_t tied = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->e[i] == best || ddp_steps_apart(s->e[i], best))
            continue;
        if (!tied++)
            doc_more(doc, " The best size is not told apart from these, whose percentiles meet its own: %.6g MB",
                     ddp_real(s->e[i], "bucket_mb"));
        else
            doc_more(doc, ", %.6g MB", ddp_real(s->e[i], "bucket_mb"));
    }
    doc_more(doc, "%s", tied ? "." : " No other size's percentiles meet those of the best.");
}

static void bucketed_sizes(document *doc, const char *dir)
{
    ddp_rows *r = ddp_rows_open(dir);
    const sweep s = sweep_of(r);
    if (s.n > 1) {
        const ddp_entry *best = quickest(&s);
        begin_strategies(doc, best);
        if (s.overlap)
            add_strategy(doc, s.overlap);
        for (size_t i = 0; i < s.n; i++)
            add_strategy(doc, s.e[i]);
        doc_paragraph(doc, "%s.", trend_of(&s));
        add_step_against(doc, best, slowest(&s));
        if (s.overlap)
            add_step_against(doc, best, s.overlap);
        add_tied(doc, &s, best);
    }
    ddp_rows_free(r);
}

static double model_off(const ddp_entry *e)
{
    return 100 * (ddp_real(e, "predicted_ms") / e->exposed - 1);
}

static void model_table(document *doc, const sweep *s)
{
    bool contention = false; /* old rows do not have this prediction */
    for (size_t i = 0; i < s->n; i++)
        contention = contention || isfinite(ddp_real(s->e[i], "predicted_exposed_ms"));
    doc_table(doc);
    doc_columns(doc, DOC_NUMBER, "MB", "calls", "communication ms [95 %]", "of it contention ms", "model ms",
                "off by %", NULL);
    if (contention)
        doc_columns(doc, DOC_NUMBER, "with contention ms", "off by %", NULL);
    for (size_t i = 0; i < s->n; i++) {
        const ddp_entry *e = s->e[i];
        doc_row(doc, ddp_text(e, "bucket_mb"), ddp_text(e, "buckets"), with_interval(e),
                precise(ddp_real(e, "contention_ms")), precise(ddp_real(e, "predicted_ms")), number(model_off(e)),
                NULL);
        if (contention)
            doc_cells(doc, precise(ddp_real(e, "predicted_exposed_ms")), number(ddp_real(e, "err_exposed_pct")), NULL);
    }
}

static const ddp_entry *nearest(const sweep *s, double mb)
{
    const ddp_entry *best = s->e[0];
    for (size_t i = 1; i < s->n; i++)
        if (fabs(log(ddp_real(s->e[i], "bucket_mb") / mb)) < fabs(log(ddp_real(best, "bucket_mb") / mb)))
            best = s->e[i];
    return best;
}

static void add_optimum(document *doc, const sweep *s)
{
    const ddp_entry *best = quickest(s);
    const double predicted = ddp_real(best, "predicted_best_mb");
    if (!isfinite(predicted)) {
        doc_more(doc, " No model was fitted to this run: o did not come out above 0.");
        return;
    }
    const ddp_entry *near = nearest(s, predicted);
    doc_more(doc, " This run's all-reduces say o = %s us and w = %s GB/s, so %s MB; of the sizes measured, ",
             number(ddp_real(best, "o_us")), number(ddp_real(best, "w_gb_s")), number(predicted));
    if (near == best) {
        doc_more(doc, "the nearest is also the best, %.6g MB.", ddp_real(best, "bucket_mb"));
        return;
    }
    doc_more(doc, "%.6g MB is nearest and %.6g MB best.", ddp_real(near, "bucket_mb"), ddp_real(best, "bucket_mb"));
    add_step_against(doc, near, best);
}

/* The least and the largest of a number over the sizes, NAN where none has it. */
typedef struct range {
    double low, high;
} range;

static range range_of(const sweep *s, double (*of)(const ddp_entry *e))
{
    range r = {NAN, NAN};
    for (size_t i = 0; i < s->n; i++) {
        r.low = fmin(r.low, of(s->e[i]));
        r.high = fmax(r.high, of(s->e[i]));
    }
    return r;
}

static double contention_of(const ddp_entry *e)
{
    return ddp_real(e, "contention_ms");
}

static double contention_off(const ddp_entry *e)
{
    return ddp_real(e, "err_exposed_pct");
}

static void add_errors(document *doc, const sweep *s)
{
    const range model = range_of(s, model_off), contention = range_of(s, contention_of),
                with = range_of(s, contention_off);
    if (!isfinite(model.low))
        return;
    doc_more(doc, " Against the measured communication its overhead is off by %s %%",
             range_text(model.low, model.high));
    if (model.high < 0 && contention.low > 0)
        doc_more(doc, ", always too low: it leaves out that collectives slow down the compute beside them, %s ms here",
                 range_text(contention.low, contention.high));
    doc_more(doc, ".");
    if (isfinite(with.low))
        doc_more(doc, " With the contention of the first size, predictions for the others are off by %s %%.",
                 range_text(with.low, with.high));
}

static void bucketed_model(document *doc, const char *dir)
{
    ddp_rows *r = ddp_rows_open(dir);
    const sweep s = sweep_of(r);
    if (s.n > 1) {
        char *title = ddp_group_title(s.e[0]);
        doc_paragraph(
            doc, "With s bytes of gradients in n calls, a fixed cost o of a call and bandwidth w, the overhead over "
                 "the backward is n o + s / (n w), least with buckets of b = s / n = sqrt(s o w).");
        add_optimum(doc, &s);
        add_errors(doc, &s);
        doc_paragraph(doc, "%s:", title);
        model_table(doc, &s);
        free(title);
    }
    ddp_rows_free(r);
}

static const char section[] = "Buckets";

const course_problem course_buckets[] = {{"ddp_overlap_bucketed", "2025", "What ran", bucketed_verified},
                                         {"ddp_bucketed_benchmarking (a)", "2025", section, bucketed_sizes},
                                         {"ddp_bucketed_benchmarking (b)", "2025", section, bucketed_model},
                                         {.name = NULL}};
