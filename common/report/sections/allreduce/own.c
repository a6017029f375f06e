/* SPDX-License-Identifier: MIT */
/* The all-reduces of our own in bench_allreduce, one-shot and two-shot, beside the library's of the same case. */
#include "common/report/sections/allreduce/own.h"

#include <math.h>
#include <string.h>

#include "common/report/section.h"

static const char *const own[] = {"one-shot", "two-shot"};
enum { OWN = sizeof own / sizeof *own };
static const char handicap[] = "the library's ran with NCCL_LAUNCH_ORDER_IMPLICIT set, which slows its replays";

/* The row of the same case as `row`, of another variant. NO_ROW where it did not go well, or in another run. */
static size_t same_case(const table *t, size_t row, const char *variant)
{
    const size_t other = table_find(t, "variant", variant, "status", "ok", "ranks", table_text(t, row, "ranks"),
                                    "bytes", table_text(t, row, "bytes"), "dtype", table_text(t, row, "dtype"), "mode",
                                    table_text(t, row, "mode"), "in_place", table_text(t, row, "in_place"), NULL);
    return table_beside(t, row, t, other) ? other : NO_ROW;
}

static double times_as_fast(const table *t, size_t row, const char *variant)
{
    return table_real(t, row, "median_ms") / table_real(t, same_case(t, row, variant), "median_ms");
}

static bool has_own(const table *t, size_t row)
{
    bool any = false;
    for (size_t v = 0; v < OWN; v++)
        any = any || same_case(t, row, own[v]) != NO_ROW;
    return any;
}

/* Graph replays of the library that ran under NCCL_LAUNCH_ORDER_IMPLICIT wait for a launch order that ours need not keep,
 * so the library is not at its strength there. */
static bool handicapped(const csv *machine, const table *t, size_t row)
{
    const char *set = run_value(machine, table_text(t, row, "run_id"), "NCCL_LAUNCH_ORDER_IMPLICIT");
    return strcmp(table_text(t, row, "mode"), "graph") == 0 && *set && strcmp(set, "0") != 0;
}

/* ---- in short ---- */

/* Of all cases of a mode on so many ranks: how many there are, in how many the better of ours is faster, and the cases of
 * the least and the largest factor. */
typedef struct gain {
    size_t cases, faster, left_out;
    size_t least_row, most_row;
    double least, most;
    const char *least_of, *most_of;
} gain;

static void add_case(gain *g, const table *t, size_t row)
{
    const char *variant = NULL;
    double best = 0;
    for (size_t v = 0; v < OWN; v++) {
        const double times = times_as_fast(t, row, own[v]);
        if (times > best) {
            best = times;
            variant = own[v];
        }
    }
    if (!g->cases || best < g->least) {
        g->least = best;
        g->least_row = row;
        g->least_of = variant;
    }
    if (!g->cases || best > g->most) {
        g->most = best;
        g->most_row = row;
        g->most_of = variant;
    }
    g->cases++;
    g->faster += best > 1;
}

static gain gain_of(const table *t, const csv *machine, const char *ranks, const char *mode)
{
    gain g = {.cases = 0};
    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(table_text(t, i, "variant"), "all-reduce") != 0 || strcmp(table_text(t, i, "status"), "ok") != 0 ||
            strcmp(table_text(t, i, "ranks"), ranks) != 0 || strcmp(table_text(t, i, "mode"), mode) != 0 ||
            !has_own(t, i))
            continue;
        if (handicapped(machine, t, i))
            g.left_out++;
        else
            add_case(&g, t, i);
    }
    return g;
}

static void add_gain(document *doc, const table *t, const gain *g, const char *mode)
{
    if (!g->least_of || !g->most_of)
        return; /* no time among them */
    doc_more(doc,
             " %s, the better of them takes less time by the median in %zu of %zu cases: the library takes %s times "
             "as long at least (%s, %s, %s) and %s at most (%s, %s, %s).",
             mode, g->faster, g->cases, number(g->least), g->least_of, table_text(t, g->least_row, "size"),
             table_text(t, g->least_row, "dtype"), number(g->most), g->most_of, table_text(t, g->most_row, "size"),
             table_text(t, g->most_row, "dtype"));
}

void allreduce_own_findings(document *doc, const table *t, const csv *machine)
{
    values ranks = table_values(t, "ranks");
    for (size_t i = 0; i < ranks.n; i++) {
        const gain eager = gain_of(t, machine, ranks.v[i], "eager"), graph = gain_of(t, machine, ranks.v[i], "graph");
        if (!eager.cases && !graph.cases)
            continue;
        doc_bullet(doc, "%s:", strong("Our own all-reduces on %s ranks", ranks.v[i]));
        if (eager.cases)
            add_gain(doc, t, &eager, "called eagerly");
        if (graph.cases)
            add_gain(doc, t, &graph, eager.cases ? "Replayed from a graph" : "replayed from a graph");
        if (graph.left_out)
            doc_more(doc, " %zu cases replayed from graphs are not compared: %s.", graph.left_out, handicap);
    }
    values_free(&ranks);
}

/* ---- the table ---- */

static void add_time(document *doc, const table *t, size_t row)
{
    if (row == NO_ROW)
        doc_blank(doc);
    else
        doc_cell(doc, "%s ± %s", number(table_real(t, row, "median_ms") * 1e3),
                 number(table_real(t, row, "std_ms") * 1e3));
}

static void begin_table(document *doc)
{
    doc_paragraph(doc, "Our own kernels, which store into the other GPUs' memory, in us: median ± standard deviation. "
                       "times is the library's\nmedian over ours: above 1, ours is faster.");
    doc_table(doc);
    doc_columns(doc, DOC_NUMBER, "ranks", "size", NULL);
    doc_columns(doc, DOC_TEXT, "mode", "in place", NULL);
    doc_columns(doc, DOC_NUMBER, "library", NULL);
    for (size_t v = 0; v < OWN; v++)
        doc_columns(doc, DOC_NUMBER, own[v], "times", NULL);
}

void allreduce_own(document *doc, const table *t, const csv *machine, const char *dtype)
{
    bool begun = false, left_out = false;
    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(table_text(t, i, "variant"), "all-reduce") != 0 || strcmp(table_text(t, i, "status"), "ok") != 0 ||
            strcmp(table_text(t, i, "dtype"), dtype) != 0 || !has_own(t, i))
            continue;
        if (!begun)
            begin_table(doc);
        begun = true;
        doc_row(doc, table_text(t, i, "ranks"), table_text(t, i, "size"), table_text(t, i, "mode"),
                strcmp(table_text(t, i, "in_place"), "1") ? "no" : "yes", NULL);
        add_time(doc, t, i);
        for (size_t v = 0; v < OWN; v++) {
            const double times = times_as_fast(t, i, own[v]);
            const bool kept = handicapped(machine, t, i);
            add_time(doc, t, same_case(t, i, own[v]));
            doc_cells(doc, isfinite(times) && !kept ? number(times) : "", NULL);
            left_out = left_out || kept;
        }
    }
    if (left_out)
        doc_paragraph(doc, "Graph rows have no ratio: %s.", handicap);
}
