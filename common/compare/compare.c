/* SPDX-License-Identifier: MIT */
/* Pairing the cases of two sides, and what stands in the way of a comparison; see compare.h. */
#include "common/compare/compare.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/core/error.h"
#include "common/core/results.h"
#include "common/core/text.h"
#include "common/compare/internal.h"

/* ---- entries ---- */

static compare_entry *add(comparison *c, compare_kind kind, const char *key, const char *metric, const char *why)
{
    const size_t bench = strcspn(key, "\t");
    c->entries = xrealloc(c->entries, (c->n + 1) * sizeof *c->entries);
    compare_entry *e = &c->entries[c->n++];
    *e = (compare_entry){.kind = kind, .metric = xstrdup(metric), .why = xstrdup(why), .a = NAN, .b = NAN};
    e->bench = xasprintf("%.*s", (int)bench, key);
    e->name = xstrdup(key + bench + (key[bench] == '\t'));
    return e;
}

void comparison_free(comparison *c)
{
    for (size_t i = 0; c && i < c->n; i++) {
        free(c->entries[i].bench);
        free(c->entries[i].name);
        free(c->entries[i].metric);
        free(c->entries[i].why);
    }
    if (c)
        free(c->entries);
    free(c);
}

size_t comparison_count(const comparison *c, compare_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        n += c->entries[i].kind == kind;
    return n;
}

size_t comparison_judged(const comparison *c, verdict v)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        n += c->entries[i].kind == COMPARE_TIME && c->entries[i].judged.verdict == v;
    return n;
}

size_t comparison_failures(const comparison *c)
{
    size_t n = comparison_count(c, COMPARE_BROKEN);
    for (size_t i = 0; i < c->n; i++) {
        const judgement *j = &c->entries[i].judged;
        n += c->entries[i].kind == COMPARE_TIME && j->verdict == VERDICT_SLOWER && j->ratio >= c->margin;
    }
    return n;
}

/* ---- one case ---- */

typedef struct pair {
    const side *a, *b;
    const group *of_a, *of_b;
    const compare_options *o;
} pair;

/* From run to run, where nobody has measured it: on the same GPU, on another one of its type, and of what varies more. */
static double noise_of(const pair *p, const char *column, double time)
{
    if (isfinite(p->o->noise))
        return p->o->noise;
    const size_t row_a = p->of_a->newest, row_b = p->of_b->newest;
    const double us = time * (text_ends(column, "_us") ? 1 : 1e3);
    const bool collective = *side_cell(p->a, row_a, "backend") && csv_real(p->a->file, row_a, "bytes") < 1048576;
    if (strcmp(side_cell(p->a, row_a, "device"), "cpu") == 0 || us < 20 || collective)
        return 0.05;
    const char *a = side_cell(p->a, row_a, "gpu_uuid"), *b = side_cell(p->b, row_b, "gpu_uuid");
    a = *a ? a : side_machine(p->a, row_a, "gpu_uuid");
    b = *b ? b : side_machine(p->b, row_b, "gpu_uuid");
    return *a && strcmp(a, b) == 0 ? 0.01 : 0.03;
}

static bool same_row(const pair *p, const timed *a, const timed *b)
{
    const char *run = side_cell(p->a, p->of_a->newest, "run_id");
    return *run && a->runs == 1 && b->runs == 1 && strcmp(run, side_cell(p->b, p->of_b->newest, "run_id")) == 0 &&
           a->median == b->median;
}

/* "overlap_used: all in A, none in B" for a phase of steps that did other work during the backward; NULL where times can be
 * compared. Caller frees. */
static char *phases_differ(const pair *p, const char *column)
{
    const char *a = side_cell(p->a, p->of_a->newest, "overlap_used"),
               *b = side_cell(p->b, p->of_b->newest, "overlap_used");
    const bool phase = text_has_word("fwd_ms bwd_ms opt_ms", column);
    return phase && *a && *b && strcmp(a, b) != 0 ? xasprintf("overlap_used: %s in A, %s in B", a, b) : NULL;
}

static void compare_times(comparison *c, const pair *p)
{
    for (size_t column = 0; column < p->a->file->columns; column++) {
        time_column of_a, of_b;
        const int other = csv_column(p->b->file, p->a->file->header[column]);
        if (other < 0 || !time_column_of(p->a->file, column, &of_a) ||
            !time_column_of(p->b->file, (size_t)other, &of_b))
            continue;
        const timed a = group_timed(p->a, p->of_a, &of_a), b = group_timed(p->b, p->of_b, &of_b);
        if (!a.runs && !b.runs)
            continue;
        OWNED char *why = !a.runs   ? xstrdup("measured only in B")
                          : !b.runs ? xstrdup("measured only in A")
                                    : phases_differ(p, of_a.name);
        if (why) {
            add(c, COMPARE_UNMATCHED, p->of_a->key, of_a.name, why);
            continue;
        }
        compare_entry *e = add(c, COMPARE_TIME, p->of_a->key, of_a.name, "");
        e->a = a.median;
        e->b = b.median;
        e->runs_a = a.runs;
        e->runs_b = b.runs;
        e->judged = judge_times(&a, &b, noise_of(p, of_a.name, a.median), c->margin);
        if (same_row(p, &a, &b))
            e->judged = (judgement){.verdict = VERDICT_SAME, .reason = ""};
    }
}

/* Bytes that the suite counts, and other counts; what the driver says of a device varies. */
static bool is_count(const char *column)
{
    return (text_ends(column, "_bytes") && !text_starts(column, "driver") && !text_starts(column, "device")) ||
           text_has_word("params buckets", column);
}

static void compare_counts(comparison *c, const pair *p)
{
    for (size_t column = 0; column < p->a->file->columns; column++) {
        const char *name = p->a->file->header[column];
        const double a = csv_real(p->a->file, p->of_a->newest, name), b = csv_real(p->b->file, p->of_b->newest, name);
        if (!is_count(name) || !isfinite(a) || !isfinite(b))
            continue;
        if (a == b) {
            c->equal++;
            continue;
        }
        compare_entry *e = add(c, COMPARE_CHANGED, p->of_a->key, name, "");
        e->a = a;
        e->b = b;
    }
}

static void compare_case(comparison *c, const pair *p)
{
    const char *key = p->of_a->key;
    OWNED char *why = conditions_differ(p->a, p->of_a->newest, p->b, p->of_b->newest, p->o->across);
    if (!why && (p->of_a->ambiguous || p->of_b->ambiguous))
        why = xstrdup("cases of one side differ in a parameter that the other side lacks");
    const char *a = side_cell(p->a, p->of_a->newest, "status"), *b = side_cell(p->b, p->of_b->newest, "status");
    const bool ok_a = strcmp(a, "ok") == 0, ok_b = strcmp(b, "ok") == 0;
    if (why)
        add(c, COMPARE_UNMATCHED, key, "", why);
    else if (ok_a && ok_b) {
        compare_times(c, p);
        compare_counts(c, p);
    } else if (ok_a && strcmp(b, "skip") != 0) {
        OWNED char *said = xasprintf("%s: %s", b, side_cell(p->b, p->of_b->newest, "reason"));
        add(c, COMPARE_BROKEN, key, "", said);
    } else if (ok_a)
        add(c, COMPARE_UNMATCHED, key, "", "skipped in B");
    else if (ok_b)
        add(c, strcmp(a, "skip") == 0 ? COMPARE_NEW : COMPARE_MENDED, key, "", "");
}

/* ---- files and folders ---- */

static void all_of(comparison *c, const side *s, compare_kind kind)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(side_cell(s, s->groups[i].newest, "status"), "ok") == 0)
            add(c, kind, s->groups[i].key, "", "");
}

static void compare_sides(comparison *c, side *a, side *b, const compare_options *o)
{
    side_group(a, b->file);
    side_group(b, a->file);
    size_t i = 0, k = 0;
    while (i < a->n || k < b->n) {
        const int order = i == a->n ? 1 : k == b->n ? -1 : strcmp(a->groups[i].key, b->groups[k].key);
        if (order == 0) {
            compare_case(c, &(pair){a, b, &a->groups[i++], &b->groups[k++], o});
            continue;
        }
        const side *s = order < 0 ? a : b;
        const group *g = order < 0 ? &a->groups[i++] : &b->groups[k++];
        if (strcmp(side_cell(s, g->newest, "status"), "ok") == 0)
            add(c, order < 0 ? COMPARE_GONE : COMPARE_NEW, g->key, "", "");
    }
}

comparison *compare_one(side *a, side *b, const compare_options *o)
{
    side_group(a, b->file);
    side_group(b, a->file);
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->groups[i].key, b->groups[0].key) == 0) {
            comparison *c = xcalloc(1, sizeof *c);
            c->margin = o->margin;
            compare_case(c, &(pair){a, b, &a->groups[i], &b->groups[0], o});
            return c;
        }
    return NULL;
}

/* `b` NULL, or `a`: there is no such file on that side. `both`: each has to have rows. */
static void compare_files(comparison *c, const char *path_a, const char *path_b, const compare_options *o, bool both)
{
    side a = {0}, b = {0};
    csv *(*const read)(const char *) = both ? csv_read : results_read; /* a file that is named may be a pipe */
    const bool has_a = path_a && side_open(&a, read(path_a), path_a, true),
               has_b = path_b && side_open(&b, read(path_b), path_b, true);
    if (both && !(has_a && has_b))
        die(EXIT_CODE_USAGE, "%s has no rows of a bench", has_a ? path_b : path_a);
    if (has_a && has_b)
        compare_sides(c, &a, &b, o);
    else if (has_a) {
        side_group(&a, a.file);
        all_of(c, &a, COMPARE_GONE);
    } else if (has_b) {
        side_group(&b, b.file);
        all_of(c, &b, COMPARE_NEW);
    }
    side_free(&a);
    side_free(&b);
}

static int is_bench(const struct dirent *entry)
{
    return text_starts(entry->d_name, "bench_") && text_ends(entry->d_name, ".csv");
}

static void compare_folders(comparison *c, const char *a, const char *b, const compare_options *o)
{
    struct dirent **in_a, **in_b;
    const int n_a = scandir(a, &in_a, is_bench, alphasort), n_b = scandir(b, &in_b, is_bench, alphasort);
    if (n_a < 0 || n_b < 0)
        die(EXIT_CODE_USAGE, "%s can't be read: %s", n_a < 0 ? a : b, strerror(errno));
    for (int i = 0, k = 0; i < n_a || k < n_b;) {
        const int order = i == n_a ? 1 : k == n_b ? -1 : strcmp(in_a[i]->d_name, in_b[k]->d_name);
        OWNED char *path_a = order <= 0 ? xasprintf("%s/%s", a, in_a[i]->d_name) : NULL;
        OWNED char *path_b = order >= 0 ? xasprintf("%s/%s", b, in_b[k]->d_name) : NULL;
        compare_files(c, path_a, path_b, o, false);
        if (path_a)
            free(in_a[i++]);
        if (path_b)
            free(in_b[k++]);
    }
    free(in_a);
    free(in_b);
}

static bool is_folder(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        die(EXIT_CODE_USAGE, "%s can't be read: %s", path, strerror(errno));
    return S_ISDIR(info.st_mode);
}

comparison *compare_paths(const char *a, const char *b, const compare_options *o)
{
    comparison *c = xcalloc(1, sizeof *c);
    c->margin = o->margin;
    const bool folder = is_folder(a);
    if (folder != is_folder(b))
        die(EXIT_CODE_USAGE, "%s is a %s and %s is not", a, folder ? "folder" : "file", b);
    if (folder)
        compare_folders(c, a, b, o);
    else
        compare_files(c, a, b, o, true);
    return c;
}
