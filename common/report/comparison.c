/* SPDX-License-Identifier: MIT */
/* Peers beside ours; see comparison.h. */
#include "common/report/comparison.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/section.h"

/* One measurement differs by so much from the next. */
static const double SAME_WITHIN = 0.02;

peer_ratio ratio_of_one(double is)
{
    return (peer_ratio){is, NAN, NAN};
}

void comparison_add(comparison *c, peer_ratio ratio, const char *who, const char *where)
{
    if (!isfinite(ratio.is))
        return;
    compared *last = c->n ? &c->cases[c->n - 1] : NULL;
    if (!last || strcmp(last->where, where) != 0) {
        c->cases = xrealloc(c->cases, (c->n + 1) * sizeof *c->cases);
        last = &c->cases[c->n++];
        *last = (compared){ratio_of_one(INFINITY), NULL, xstrdup(where)};
    }
    if (ratio.is < last->ratio.is) {
        free(last->who);
        last->ratio = ratio, last->who = xstrdup(who);
    }
}

void comparison_refuse(comparison *c, const char *why, const char *who, const char *where)
{
    c->refused = xrealloc(c->refused, (c->n_refused + 1) * sizeof *c->refused);
    c->refused[c->n_refused++] = (refused){why, xstrdup(who), xstrdup(where)};
}

const compared *comparison_least(const comparison *c)
{
    const compared *least = NULL;
    for (size_t i = 0; i < c->n; i++)
        if (!least || c->cases[i].ratio.is < least->ratio.is)
            least = &c->cases[i];
    return least;
}

static const compared *most_of(const comparison *c)
{
    const compared *most = NULL;
    for (size_t i = 0; i < c->n; i++)
        if (!most || c->cases[i].ratio.is > most->ratio.is)
            most = &c->cases[i];
    return most;
}

comparison_verdict comparison_judge(peer_ratio ratio)
{
    const bool rounds = isfinite(ratio.low) && isfinite(ratio.high);
    const double low = rounds ? ratio.low : ratio.is - SAME_WITHIN, high = rounds ? ratio.high : ratio.is + SAME_WITHIN;
    return low > 1 ? PEER_SLOWER : high < 1 ? PEER_FASTER : PEER_SAME;
}

void comparison_free(comparison *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->cases[i].who);
        free(c->cases[i].where);
    }
    for (size_t i = 0; i < c->n_refused; i++) {
        free(c->refused[i].who);
        free(c->refused[i].where);
    }
    free(c->cases);
    free(c->refused);
    free(c->what);
    *c = (comparison){0};
}

/* ---- all of them ---- */

comparison *comparisons_begin(comparisons *c, char *what)
{
    c->all = xrealloc(c->all, (c->n + 1) * sizeof *c->all);
    comparison *last = &c->all[c->n++];
    *last = (comparison){.what = what};
    return last;
}

/* The one of a kind of work that comes before `end`, or `end`. */
static size_t place_of(const comparisons *c, size_t end, const char *what)
{
    size_t i = 0;
    while (i < end && strcmp(c->all[i].what, what) != 0)
        i++;
    return i;
}

static int by_least(const void *a, const void *b)
{
    const compared *x = comparison_least(a), *y = comparison_least(b);
    if (!x || !y)
        return !x - !y;
    return (x->ratio.is > y->ratio.is) - (x->ratio.is < y->ratio.is);
}

/* Of one kind of work that which has cases stays, and of two of these the first. */
static void keep(comparisons *c, size_t kept, comparison *more)
{
    const size_t at = place_of(c, kept, more->what);
    if (at < kept && (c->all[at].n || !more->n)) {
        comparison_free(more);
        return;
    }
    if (at < kept)
        comparison_free(&c->all[at]);
    c->all[at] = *more;
    c->n = at < kept ? kept : kept + 1;
}

comparisons comparisons_of(char *const *dirs, size_t count)
{
    comparisons c = {0};
    for (size_t d = 0; d < count; d++) {
        comparisons here = {0};
        for (const report_section *const *s = report_sections; *s; s++)
            if ((*s)->compare)
                (*s)->compare(&here, dirs[d]);
        for (size_t i = 0; i < here.n; i++) {
            c.all = xrealloc(c.all, (c.n + 1) * sizeof *c.all);
            if (here.all[i].n || here.all[i].n_refused)
                keep(&c, c.n, &here.all[i]);
            else
                comparison_free(&here.all[i]);
        }
        free(here.all);
    }
    if (c.n)
        qsort(c.all, c.n, sizeof *c.all, by_least);
    return c;
}

/* ---- as text ---- */

static void write_row(document *doc, const comparison *c)
{
    const compared *least = comparison_least(c);
    size_t of[3] = {0};
    for (size_t i = 0; i < c->n; i++)
        of[comparison_judge(c->cases[i].ratio)]++;
    doc_row(doc, c->what, NULL);
    doc_cell(doc, "%zu / %zu / %zu", of[PEER_SLOWER], of[PEER_SAME], of[PEER_FASTER]);
    if (c->n > 1)
        doc_cell(doc, "%s to %s", hundredths(least->ratio.is), hundredths(most_of(c)->ratio.is));
    else
        doc_cell(doc, "%s", hundredths(least->ratio.is));
    doc_cell(doc, "%s %s, %s", least->who, ratio_text(least->ratio), least->where);
}

static void write_own(document *doc, const comparisons *c)
{
    bool begun = false;
    for (size_t i = 0; i < c->n; i++) {
        if (!c->all[i].n || c->all[i].library)
            continue;
        if (!begun) {
            doc_table(doc);
            doc_columns(doc, DOC_TEXT, "work", NULL);
            doc_columns(doc, DOC_NUMBER, "faster / same / slower", "all ratios", NULL);
            doc_columns(doc, DOC_TEXT, "the worst case", NULL);
        }
        begun = true;
        write_row(doc, &c->all[i]);
    }
}

/* Ratios of two harnesses around one library say how far either can be trusted, not what is faster. */
static void write_libraries(document *doc, const comparisons *c)
{
    bool begun = false;
    for (size_t i = 0; i < c->n; i++) {
        const comparison *of = &c->all[i];
        if (!of->n || !of->library)
            continue;
        if (!begun)
            doc_paragraph(doc, "Same library on both sides, so that you can trust the harness:");
        doc_more(doc, "%s %s, %s: %s to %s (%zu case%s)", begun ? ";" : "", of->library, of->what,
                 hundredths(comparison_least(of)->ratio.is), hundredths(most_of(of)->ratio.is), of->n,
                 of->n == 1 ? "" : "s");
        begun = true;
    }
    if (begun)
        doc_more(doc, ".");
}

static bool said_before(const comparisons *c, size_t i, size_t k)
{
    const char *why = c->all[i].refused[k].why;
    for (size_t a = 0; a <= i; a++)
        for (size_t b = 0; b < c->all[a].n_refused && (a < i || b < k); b++)
            if (strcmp(c->all[a].refused[b].why, why) == 0)
                return true;
    return false;
}

static size_t refused_for(const comparison *c, const char *why)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_refused; i++)
        n += strcmp(c->refused[i].why, why) == 0;
    return n;
}

/* "FlashAttention-4 in attention, backward, bf16 (B 8, H 16)", or of many "attention, backward, bf16 (4 rows)". */
static void add_refused(document *doc, const comparison *c, const char *why, bool many, const char **separator)
{
    const size_t rows = refused_for(c, why);
    for (size_t i = 0; i < c->n_refused && !many; i++) {
        if (strcmp(c->refused[i].why, why) != 0)
            continue;
        doc_more(doc, "%s %s in %s (%s)", *separator, c->refused[i].who, c->what, c->refused[i].where);
        *separator = ";";
    }
    if (many && rows) {
        doc_more(doc, "%s %s (%zu row%s)", *separator, c->what, rows, rows == 1 ? "" : "s");
        *separator = ";";
    }
}

enum { NAMED = 8 }; /* rows that one reason refuses; more are counted */

static void write_refused(document *doc, const comparisons *c)
{
    bool begun = false;
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->all[i].n_refused; k++) {
            const char *why = c->all[i].refused[k].why, *separator = "";
            if (said_before(c, i, k))
                continue;
            if (!begun)
                doc_paragraph(doc, "No ratio is formed of these rows:");
            begun = true;
            size_t rows = 0;
            for (size_t of = 0; of < c->n; of++)
                rows += refused_for(&c->all[of], why);
            doc_bullet(doc, "%s:", why);
            for (size_t of = 0; of < c->n; of++)
                add_refused(doc, &c->all[of], why, rows > NAMED, &separator);
            doc_more(doc, ".");
        }
}

void comparisons_write(document *doc, const comparisons *c)
{
    write_own(doc, c);
    write_libraries(doc, c);
    write_refused(doc, c);
}

void comparisons_free(comparisons *c)
{
    for (size_t i = 0; i < c->n; i++)
        comparison_free(&c->all[i]);
    free(c->all);
    *c = (comparisons){0};
}
