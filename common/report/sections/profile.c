/* SPDX-License-Identifier: MIT */
/* Profiles in the report: the newest of each case, from the tables in profile/ (docs/profile.md). Each table is written
 * by row of totals.csv, whose bench, case, measurement and run say which rows of the others are of the same profile. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/report/section.h"

enum { KERNELS_SHOWN = 8, IDLE_SHOWN = 6 };

typedef struct profile { /* what one profile's rows share, as totals.csv has it */
    const csv *totals;
    size_t row; /* of the first rank */
} profile;

static bool same(const csv *a, size_t i, const csv *b, size_t k, const char *column)
{
    return cell_is(a, i, column, csv_cell(b, k, column));
}

static bool belongs(const profile *p, const csv *c, size_t i)
{
    return same(c, i, p->totals, p->row, "bench") && same(c, i, p->totals, p->row, "case") &&
           same(c, i, p->totals, p->row, "measurement") && same(c, i, p->totals, p->row, "run_id");
}

static bool of_first_rank(const profile *p, const csv *c, size_t i)
{
    return belongs(p, c, i) && same(c, i, p->totals, p->row, "rank");
}

/* The first rank's row of the newest run of its case. */
static bool is_newest(const csv *totals, size_t row)
{
    if (csv_real(totals, row, "rank") != 0)
        return false;
    for (size_t i = row + 1; i < totals->rows; i++)
        if (same(totals, i, totals, row, "bench") && same(totals, i, totals, row, "case") &&
            same(totals, i, totals, row, "measurement") && csv_real(totals, i, "rank") == 0)
            return false;
    return true;
}

static const char *value(const csv *c, size_t row, const char *column)
{
    return number(csv_real(c, row, column));
}

static void in_words(document *doc, const profile *p)
{
    const csv *t = p->totals;
    const double window = csv_real(t, p->row, "window_ms"), busy = csv_real(t, p->row, "busy_ms");
    const double event = csv_real(t, p->row, "event_ms"), attributed = csv_real(t, p->row, "attributed_pct");
    doc_paragraph(doc, "%s.", code("%s", csv_cell(t, p->row, "case")));
    doc_paragraph(doc,
                  "By events it takes %s ms, by the host's clock %s ms; it was timed at %s ms. In the recorded step, "
                  "of %s ms, something ran in "
                  "%s ms, and nothing in %s %% of the time. Recording costs %s %%.",
                  number(event), value(t, p->row, "host_ms"), value(t, p->row, "timed_ms"), number(window),
                  number(busy), number(100 * (1 - busy / window)), value(t, p->row, "profiler_overhead_pct"));
    if (attributed < 99.5)
        doc_more(doc, " Only %s %% of the kernels' time is attributed to ranges.", number(attributed));
    doc_more(doc, " The trace is %s.", code("profile/%s", csv_cell(t, p->row, "trace")));
}

static void kernels(document *doc, const profile *p, const csv *c)
{
    int shown = 0;
    for (size_t i = 0; c && i < c->rows && shown < KERNELS_SHOWN; i++) { /* the file has them by lost_ms */
        if (!of_first_rank(p, c, i))
            continue;
        if (shown++ == 0) {
            const double lost = csv_real(c, i, "lost_ms");
            if (lost > 0)
                doc_paragraph(doc,
                              "Most is to be gained from %s in %s: it reaches %s %% of what its FLOPs and bytes allow, "
                              "which loses %s ms.",
                              csv_cell(c, i, "op"), *csv_cell(c, i, "range") ? csv_cell(c, i, "range") : "no range",
                              value(c, i, "attained_pct"), number(lost));
            doc_table(doc);
            doc_columns(doc, DOC_TEXT, "range", "op", "kernel", NULL);
            doc_columns(doc, DOC_NUMBER, "calls", "ms", "share %", NULL);
            doc_columns(doc, DOC_TEXT, "bound", NULL);
            doc_columns(doc, DOC_NUMBER, "attained %", "lost ms", NULL);
        }
        doc_row(doc, csv_cell(c, i, "range"), csv_cell(c, i, "op"), csv_cell(c, i, "name"), csv_cell(c, i, "calls"),
                value(c, i, "total_ms"), value(c, i, "share_pct"), csv_cell(c, i, "bound"), value(c, i, "attained_pct"),
                value(c, i, "lost_ms"), NULL);
    }
}

static void products(document *doc, const profile *p, const csv *c)
{
    bool begun = false;
    for (size_t i = 0; c && i < c->rows; i++) {
        if (!of_first_rank(p, c, i))
            continue;
        if (!begun) {
            doc_paragraph(doc, "Share of matrix products");
            doc_table(doc);
            doc_columns(doc, DOC_TEXT, "of", NULL);
            doc_columns(doc, DOC_NUMBER, "products %", "attention in one kernel %", "other %", "idle %", NULL);
        }
        begun = true;
        doc_row(doc, csv_cell(c, i, "mode"), value(c, i, "gemm_pct"), value(c, i, "attention_pct"),
                value(c, i, "other_pct"), value(c, i, "idle_pct"), NULL);
    }
}

static void softmax(document *doc, const profile *p, const csv *c)
{
    bool begun = false;
    for (size_t i = 0; c && i < c->rows; i++) {
        if (!of_first_rank(p, c, i) || !cell_is(c, i, "form", "parts"))
            continue;
        if (!begun) {
            doc_paragraph(doc, "Softmax beside the products of attention");
            doc_table(doc);
            doc_columns(doc, DOC_TEXT, "pass", NULL);
            doc_columns(doc, DOC_NUMBER, "scores ms", "mask ms", "softmax ms", "value ms", "softmax / products: time",
                        "FLOPs", "bytes", NULL);
        }
        begun = true;
        doc_row(doc, csv_cell(c, i, "pass"), value(c, i, "scores_ms"), value(c, i, "mask_ms"),
                value(c, i, "softmax_ms"), value(c, i, "value_ms"), value(c, i, "time_ratio"),
                value(c, i, "flop_ratio"), value(c, i, "byte_ratio"), NULL);
    }
}

static void idle(document *doc, const profile *p, const csv *c)
{
    int shown = 0;
    for (size_t i = 0; c && i < c->rows && shown < IDLE_SHOWN; i++) {
        if (!of_first_rank(p, c, i))
            continue;
        if (shown++ == 0) {
            doc_paragraph(doc, "Why nothing ran");
            doc_table(doc);
            doc_columns(doc, DOC_TEXT, "class", "the host was in", NULL);
            doc_columns(doc, DOC_NUMBER, "gaps", "ms", "longest us", NULL);
            doc_columns(doc, DOC_TEXT, "after", "before", NULL);
        }
        doc_row(doc, csv_cell(c, i, "class"), csv_cell(c, i, "host_in"), csv_cell(c, i, "count"),
                value(c, i, "total_ms"), value(c, i, "longest_us"), csv_cell(c, i, "after"), csv_cell(c, i, "before"),
                NULL);
    }
}

static void overlap(document *doc, const profile *p, const csv *c)
{
    bool begun = false;
    for (size_t i = 0; c && i < c->rows; i++) {
        if (!belongs(p, c, i) || !(csv_real(c, i, "comm_ms") > 0))
            continue;
        if (!begun) {
            doc_paragraph(doc,
                          "Communication and compute, by rank, in ms. The terms are the recorded step less the same "
                          "step without communication.");
            doc_table(doc);
            doc_columns(doc, DOC_NUMBER, "rank", "communication", "of it exposed", "overlapped %", "step", "without",
                        "exposed", "slower compute", "copies", "idle", "residual", NULL);
        }
        begun = true;
        doc_row(doc, csv_cell(c, i, "rank"), value(c, i, "comm_ms"), value(c, i, "exposed_ms"),
                value(c, i, "overlapped_pct"), value(c, i, "step_ms"), value(c, i, "twin_ms"),
                value(c, i, "term_exposed_ms"), value(c, i, "term_compute_ms"), value(c, i, "term_copy_ms"),
                value(c, i, "term_idle_ms"), value(c, i, "residual_ms"), NULL);
    }
}

/* Sums over a rank's collectives. */
static void collectives(document *doc, const profile *p, const csv *c)
{
    const int ranks = (int)csv_real(p->totals, p->row, "ranks");
    bool begun = false;
    for (int rank = 0; c && rank < ranks; rank++) {
        double wait = 0, transfer = 0, bytes = 0;
        int n = 0, late = 0;
        for (size_t i = 0; i < c->rows; i++) {
            if (!belongs(p, c, i) || csv_real(c, i, "rank") != rank)
                continue;
            n++;
            wait += csv_real(c, i, "wait_us");
            transfer += csv_real(c, i, "transfer_us");
            bytes += isnan(csv_real(c, i, "bytes")) ? 0 : csv_real(c, i, "bytes");
            late += csv_real(c, i, "late_rank") == rank;
        }
        if (n == 0)
            continue;
        if (!begun) {
            doc_paragraph(doc, "Collectives by rank");
            doc_table(doc);
            doc_columns(doc, DOC_NUMBER, "rank", "collectives", "MiB", "waited ms", "moved data ms", "came last", NULL);
        }
        begun = true;
        doc_row(doc, NULL);
        doc_cell(doc, "%d", rank);
        doc_cell(doc, "%d", n);
        doc_cells(doc, number(bytes / MIB), number(wait / 1e3), number(transfer / 1e3), NULL);
        doc_cell(doc, "%d", late);
    }
}

/* The first few parameters of a case: enough to tell profiles apart in most folders; all of them follow below. */
static int short_case(const char *key)
{
    const char *end = key;
    for (int words = 0; words < 4 && *end; words++)
        end += strcspn(end + 1, " ") + 1;
    return (int)(end - key);
}

static void write_section(document *doc, const char *dir)
{
    csv *totals = open_peer(dir, "profile/totals.csv");
    if (!totals)
        return;
    static const struct {
        const char *file;
        void (*write)(document *doc, const profile *p, const csv *c);
    } tables[] = {{"profile/kernels.csv", kernels}, {"profile/products.csv", products},
                  {"profile/softmax.csv", softmax}, {"profile/idle.csv", idle},
                  {"profile/overlap.csv", overlap}, {"profile/collectives.csv", collectives}};
    enum { TABLES = sizeof tables / sizeof *tables };
    csv *files[TABLES];
    for (size_t k = 0; k < TABLES; k++)
        files[k] = open_peer(dir, tables[k].file);
    doc_heading(doc, 2, "Profiles: where the time of a step goes");
    doc_paragraph(doc,
                  "From %s. A kernel's ideal is the longer of its FLOPs at the rate of the best GEMM and its bytes at "
                  "that of the best copy; what it takes beyond that is lost.",
                  code("--profile"));
    for (size_t i = 0; i < totals->rows; i++) {
        const profile p = {totals, i};
        const char *variant = csv_cell(totals, i, "variant");
        if (!is_newest(totals, i))
            continue;
        const char *key = csv_cell(totals, i, "case");
        doc_fold(doc, "%s%s%s, %.*s, %s: %s ms", csv_cell(totals, i, "bench"), *variant ? ", " : "", variant,
                 short_case(key), key, csv_cell(totals, i, "measurement"), value(totals, i, "event_ms"));
        in_words(doc, &p);
        for (size_t k = 0; k < TABLES; k++)
            tables[k].write(doc, &p, files[k]);
        doc_fold_end(doc);
    }
    for (size_t k = 0; k < TABLES; k++)
        csv_free(files[k]);
    csv_free(totals);
}

const report_section section_profile = {.order = 950, .write = write_section};
