/* SPDX-License-Identifier: MIT */
/* A comparison as text, CSV and Markdown. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/core/text.h"
#include "common/compare/compare.h"

static const char *const verdicts[] = {"SAME", "FASTER", "SLOWER", "UNCLEAR"};
static const char *const kinds[] = {"", "CHANGED", "BROKEN", "MENDED", "NEW", "GONE", "NOT COMPARED"};

const char *compare_word(const compare_entry *e)
{
    return e->kind == COMPARE_TIME ? verdicts[e->judged.verdict] : kinds[e->kind];
}

static double percent(double ratio)
{
    return 100 * expm1(ratio);
}

/* The order in which a reader wants them. */
static int rank_of(const compare_entry *e)
{
    static const int of_verdict[] = {7, 2, 1, 4}, of_kind[] = {0, 5, 0, 3, 8, 9, 6};
    return e->kind == COMPARE_TIME ? of_verdict[e->judged.verdict] : of_kind[e->kind];
}

static int by_rank(const void *a, const void *b)
{
    const compare_entry *x = *(const compare_entry *const *)a, *y = *(const compare_entry *const *)b;
    const int order = rank_of(x) - rank_of(y);
    if (order)
        return order;
    if (x->kind == COMPARE_TIME && fabs(x->judged.ratio) != fabs(y->judged.ratio))
        return fabs(x->judged.ratio) < fabs(y->judged.ratio) ? 1 : -1;
    return (x > y) - (x < y);
}

static const compare_entry **ranked(const comparison *c)
{
    const compare_entry **list = xcalloc(c->n + 1, sizeof *list);
    for (size_t i = 0; i < c->n; i++)
        list[i] = &c->entries[i];
    qsort(list, c->n, sizeof *list, by_rank);
    return list;
}

/* Why an entry is not judged; a case alone in a file has no reason. Caller frees. */
static char *reason_of(const compare_entry *e)
{
    if (e->kind == COMPARE_TIME && e->judged.runs_needed)
        return xasprintf("%s; about %zu runs per side would settle it", e->judged.reason, e->judged.runs_needed);
    return xstrdup(e->kind == COMPARE_TIME ? e->judged.reason : e->why);
}

static char *numbers_of(const compare_entry *e)
{
    if (e->kind == COMPARE_CHANGED)
        return xasprintf("%.9g -> %.9g (%+.2f %%)", e->a, e->b, 100 * (e->b / e->a - 1));
    if (e->kind != COMPARE_TIME)
        return xstrdup("");
    const char *unit = e->metric + strlen(e->metric) - 2;
    if (!isfinite(e->judged.lo))
        return xasprintf("%.4g -> %.4g %s, %+.1f %%", e->a, e->b, unit, percent(e->judged.ratio));
    return xasprintf("%.4g -> %.4g %s, %+.1f %% [%+.1f, %+.1f]", e->a, e->b, unit, percent(e->judged.ratio),
                     percent(e->judged.lo), percent(e->judged.hi));
}

static bool in_full(const compare_entry *e, bool all)
{
    if (e->kind == COMPARE_TIME)
        return all || e->judged.verdict == VERDICT_FASTER || e->judged.verdict == VERDICT_SLOWER;
    return all || e->kind == COMPARE_BROKEN || e->kind == COMPARE_MENDED || e->kind == COMPARE_CHANGED;
}

/* The variant of an entry, and those of its parameters that some entry of its bench does not share. Caller frees. */
static char *distinction_of(const compare_entry *const *list, size_t n, const compare_entry *e)
{
    char *text;
    unsigned long bytes;
    FILE *out = text_stream(&text, &bytes);
    for (const char *at = e->name, *end; *at; at = end + strspn(end, " ")) {
        end = at + strcspn(at, " ");
        OWNED char *word = xasprintf("%.*s", (int)(end - at), at);
        bool differs = at == e->name;
        for (size_t i = 0; i < n && !differs; i++)
            differs = strcmp(list[i]->bench, e->bench) == 0 && !text_has_word(list[i]->name, word);
        if (differs)
            fprintf(out, "%s%s", at == e->name ? "" : " ", word);
    }
    fclose(out);
    return text;
}

/* Calls `say` for each group of entries of one verdict, bench and reason, which stand side by side in no order. */
typedef void say_group(void *to, const char *word, const char *bench, const char *why, size_t n, const char *example);
static void each_group(const compare_entry *const *list, size_t n, void *to, say_group *say)
{
    OWNED bool *said = xcalloc(n + 1, sizeof *said);
    for (size_t i = 0; i < n; i++) {
        const bool same = list[i]->kind == COMPARE_TIME && list[i]->judged.verdict == VERDICT_SAME;
        if (said[i] || same || in_full(list[i], false))
            continue;
        const char *why = list[i]->kind == COMPARE_TIME ? list[i]->judged.reason : list[i]->why;
        size_t alike = 0;
        for (size_t k = i; k < n; k++) {
            const char *other = list[k]->kind == COMPARE_TIME ? list[k]->judged.reason : list[k]->why;
            if (!said[k] && !in_full(list[k], false) && strcmp(compare_word(list[i]), compare_word(list[k])) == 0 &&
                strcmp(list[i]->bench, list[k]->bench) == 0 && strcmp(why, other) == 0) {
                said[k] = true;
                alike++;
            }
        }
        OWNED char *example = distinction_of(list, n, list[i]);
        say(to, compare_word(list[i]), list[i]->bench, why, alike, example);
    }
}

static char *summary_of(const comparison *c)
{
    return xasprintf(
        "%zu times: %zu SAME, %zu FASTER, %zu SLOWER, %zu UNCLEAR. Bytes and counts: %zu equal, %zu "
        "CHANGED. Cases: %zu BROKEN, %zu MENDED, %zu NEW, %zu GONE, %zu not compared.",
        comparison_count(c, COMPARE_TIME), comparison_judged(c, VERDICT_SAME), comparison_judged(c, VERDICT_FASTER),
        comparison_judged(c, VERDICT_SLOWER), comparison_judged(c, VERDICT_UNCLEAR), c->equal,
        comparison_count(c, COMPARE_CHANGED), comparison_count(c, COMPARE_BROKEN), comparison_count(c, COMPARE_MENDED),
        comparison_count(c, COMPARE_NEW), comparison_count(c, COMPARE_GONE), comparison_count(c, COMPARE_UNMATCHED));
}

/* ---- text ---- */

static void say_text(void *to, const char *word, const char *bench, const char *why, size_t n, const char *example)
{
    fprintf(to, "%-12s %s x %zu%s%s (such as %s)\n", word, bench, n, *why ? ": " : "", why, example);
}

void compare_write_text(FILE *out, const comparison *c, const char *const names[2], bool all)
{
    OWNED const compare_entry **list = ranked(c);
    OWNED char *summary = summary_of(c);
    fprintf(out, "A %s\nB %s\n%s\n", names[0], names[1], summary);
    for (size_t i = 0; i < c->n; i++)
        if (in_full(list[i], all)) {
            OWNED char *numbers = numbers_of(list[i]), *reason = reason_of(list[i]);
            fprintf(out, "%-12s %s %s%s%s%s%s%s%s\n", compare_word(list[i]), list[i]->bench, list[i]->name,
                    *list[i]->metric ? ": " : "", list[i]->metric, *numbers ? " " : "", numbers, *reason ? "; " : "",
                    reason);
        }
    if (!all)
        each_group(list, c->n, out, say_text);
}

/* ---- CSV ---- */

static void csv_text(FILE *out, const char *text, char end)
{
    OWNED char *quoted = csv_quoted(text);
    fprintf(out, "%s%c", quoted, end);
}

void compare_write_csv(FILE *out, const comparison *c, const char *const names[2], bool all)
{
    (void)names;
    (void)all;
    fputs("verdict,bench,case,metric,a,b,change_pct,lo_pct,hi_pct,runs_a,runs_b,runs_needed,reason\n", out);
    OWNED const compare_entry **list = ranked(c);
    for (size_t i = 0; i < c->n; i++) {
        const compare_entry *e = list[i];
        const bool timed = e->kind == COMPARE_TIME;
        csv_text(out, compare_word(e), ',');
        csv_text(out, e->bench, ',');
        csv_text(out, e->name, ',');
        csv_text(out, e->metric, ',');
        fprintf(out, "%.9g,%.9g,%.4g,%.4g,%.4g,%zu,%zu,%zu,", e->a, e->b,
                timed ? percent(e->judged.ratio) : 100 * (e->b / e->a - 1), timed ? percent(e->judged.lo) : NAN,
                timed ? percent(e->judged.hi) : NAN, e->runs_a, e->runs_b, timed ? e->judged.runs_needed : 0);
        csv_text(out, timed ? e->judged.reason : e->why, '\n');
    }
}

/* ---- Markdown ---- */

/* What a cell holds is never markup: a value may come from anybody's file. */
static void md_cell(FILE *out, const char *text)
{
    fputc(' ', out);
    for (; *text; text++)
        if (*text == '<')
            fputs("&lt;", out);
        else
            fprintf(out, "%s%c", strchr("|*`[]\\", *text) ? "\\" : "", (unsigned char)*text < ' ' ? ' ' : *text);
    fputs(" |", out);
}

static void md_row(FILE *out, const char *const *cells, size_t n)
{
    fputc('|', out);
    for (size_t i = 0; i < n; i++)
        md_cell(out, cells[i]);
    fputc('\n', out);
}

static void say_row(void *to, const char *word, const char *bench, const char *why, size_t n, const char *example)
{
    OWNED char *times = xasprintf("%zu", n);
    md_row(to, (const char *const[]){word, bench, times, why, example}, 5);
}

void compare_write_markdown(FILE *out, const comparison *c, const char *const names[2], bool all)
{
    OWNED const compare_entry **list = ranked(c);
    OWNED char *summary = summary_of(c);
    fprintf(out, "# Comparison\n\n- A: `%s`\n- B: `%s`\n\n%s\n\n", names[0], names[1], summary);
    bool begun = false;
    for (size_t i = 0; i < c->n; i++) {
        if (!in_full(list[i], all))
            continue;
        if (!begun)
            fputs("| verdict | bench | case | column | A -> B [95 %] | reason |\n|---|---|---|---|---|---|\n", out);
        begun = true;
        OWNED char *numbers = numbers_of(list[i]), *reason = reason_of(list[i]);
        md_row(out,
               (const char *const[]){compare_word(list[i]), list[i]->bench, list[i]->name, list[i]->metric, numbers,
                                     reason},
               6);
    }
    fputs(begun ? "\n" : "", out);
    size_t rest = 0;
    for (size_t i = 0; i < c->n; i++)
        rest += !in_full(list[i], false) && !(list[i]->kind == COMPARE_TIME && list[i]->judged.verdict == VERDICT_SAME);
    if (!all && rest) {
        fputs("## Not judged\n\n| what | bench | times | reason | such as |\n|---|---|---:|---|---|\n", out);
        each_group(list, c->n, out, say_row);
        fputc('\n', out);
    }
}
