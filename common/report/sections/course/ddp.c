/* SPDX-License-Identifier: MIT */
/* Problems of data parallelism with a whole model on every rank. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/report/sections/course/course.h"
#include "common/report/sections/course/ranks.h"

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- verified ---- */

static void naive_verified(document *doc, const char *dir)
{
    say_verified(doc, dir, "bench_ddp_naive.csv", NAMES("naive", "naive-grouped"));
}

static void overlap_verified(document *doc, const char *dir)
{
    say_verified(doc, dir, "bench_ddp_overlap.csv", NAMES("overlap"));
}

/* ---- tables ---- */

/* The rows that stand for these strategies in the group that answers; those without one are left out. */
static bool strategies(document *doc, const ddp_rows *r, const char *const *needed, const char *const *shown,
                       const ddp_entry **entries)
{
    size_t first, end;
    if (!r || !course_group(r, needed, &first, &end))
        return false;
    begin_strategies(doc, &r->all[first]);
    for (size_t i = 0; shown[i]; i++) {
        entries[i] = ddp_best(r, first, end, shown[i], NULL);
        if (entries[i])
            add_strategy(doc, entries[i]);
    }
    return true;
}

/* ---- naive ---- */

/* With every model, batch and number of ranks that the machine's main size was measured with. */
static void naive_benchmarking(document *doc, const char *dir)
{
    ddp_rows *r = ddp_rows_open(dir);
    size_t first, end;
    if (r && course_group(r, NAMES("naive"), &first, &end)) {
        const ddp_entry *e = ddp_best(r, first, end, "naive", NULL);
        doc_table(doc);
        doc_columns(doc, DOC_TEXT, "size", "precision", "gradients", NULL);
        doc_columns(doc, DOC_NUMBER, "ranks", "batch per rank", "S", "step ms", "communication ms [95 %]",
                    "of the step %", NULL);
        for (size_t at = 0, behind; at < r->n; at = behind) {
            behind = ddp_group_end(r, at);
            const ddp_entry *one = ddp_best(r, at, behind, "naive", NULL);
            if (one && ddp_same(one, e, "device") && ddp_same(one, e, "size"))
                doc_row(doc, ddp_text(one, "size"), ddp_text(one, "precision"), one->wire, ddp_text(one, "ranks"),
                        ddp_text(one, "batch"), ddp_text(one, "seq"), precise(ddp_step_ms(one)), with_interval(one),
                        number(course_share_pct(one)), NULL);
        }
        char *title = ddp_group_title(e);
        doc_paragraph(doc,
                      "%s: of a step of %s ms, %s ms (%s %%) are communication. Its %s all-reduces follow the backward "
                      "and take %s ms by themselves.",
                      title, precise(ddp_step_ms(e)), precise(e->exposed), number(course_share_pct(e)),
                      ddp_text(e, "buckets"), precise(ddp_real(e, "comm_alone_ms")));
        free(title);
    }
    ddp_rows_free(r);
}

/* ---- flat ---- */

static void add_exposed_against(document *doc, const ddp_entry *e, const ddp_entry *base)
{
    doc_more(doc, " %s exposes %s ms of communication, %s %s ms (intervals %s).", code("%s", e->label),
             precise(e->exposed), code("%s", base->label), precise(base->exposed),
             ddp_apart(e, base) ? "separate" : "meet");
}

static void flat_benchmarking(document *doc, const char *dir)
{
    enum { NAIVE, COPY, FLAT };
    const ddp_entry *e[3];
    ddp_rows *r = ddp_rows_open(dir);
    if (strategies(doc, r, NAMES("naive", "flat"), NAMES("naive", "flat-copy", "flat"), e)) {
        doc_paragraph(doc, "%s calls in a step become %s.", ddp_text(e[NAIVE], "buckets"),
                      ddp_text(e[FLAT], "buckets"));
        if (e[COPY]) {
            doc_more(
                doc,
                " %s, the handout's, copies gradients together and back; its step without communication does, too, "
                "so that the copies are not in its communication.",
                code("flat-copy"));
            add_step_against(doc, e[COPY], e[NAIVE]);
            doc_more(doc, " In %s gradients lie together from the start.", code("flat"));
            add_step_against(doc, e[COPY], e[FLAT]);
        }
        add_step_against(doc, e[FLAT], e[NAIVE]);
        add_exposed_against(doc, e[FLAT], e[NAIVE]);
    }
    ddp_rows_free(r);
}

/* ---- overlap ---- */

static void overlap_benchmarking(document *doc, const char *dir)
{
    enum { NAIVE, COPY, FLAT, OVERLAP };
    const ddp_entry *e[4];
    ddp_rows *r = ddp_rows_open(dir);
    if (strategies(doc, r, NAMES("naive", "flat", "overlap"), NAMES("naive", "flat-copy", "flat", "overlap"), e)) {
        const ddp_entry *o = e[OVERLAP];
        doc_paragraph(doc, "Of %s ms that the calls take alone, %s exposes %s ms",
                      precise(ddp_real(o, "comm_alone_ms")), code("overlap"), with_interval(o));
        if (isfinite(ddp_real(o, "tail_ms")))
            doc_more(doc,
                     ": %s ms in which compute waits after the backward, the rest by slowing down compute beside it",
                     precise(ddp_real(o, "tail_ms")));
        doc_more(doc, ".");
        for (size_t i = 0; i < OVERLAP; i++)
            if (e[i])
                add_step_against(doc, o, e[i]);
        figures(doc, dir, "ddp_timeline.");
    }
    ddp_rows_free(r);
}

static const char parallel[] = "Data parallelism", ran[] = "What ran";

const course_problem course_ddp[] = {
    {"naive_ddp", "2025, 2026", ran, naive_verified},
    {"naive_ddp_benchmarking", "2025, 2026", parallel, naive_benchmarking},
    {"minimal_ddp_flat_benchmarking", "2025, 2026", parallel, flat_benchmarking},
    {"ddp_overlap_individual_parameters", "2025, 2026", ran, overlap_verified},
    {"ddp_overlap_individual_parameters_benchmarking", "2025, 2026", parallel, overlap_benchmarking},
    {.name = NULL}};
