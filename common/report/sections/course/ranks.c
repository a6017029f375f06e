/* SPDX-License-Identifier: MIT */
/* What several problems of data parallelism share; see ranks.h. */
#include "common/report/sections/course/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/report/section.h"

const char *course_device(const table *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(table_text(t, i, "device"), "cuda") == 0 && strcmp(table_text(t, i, "status"), "skip") != 0)
            return "cuda";
    return "cpu";
}

/* ---- the check ---- */

typedef struct checked {
    size_t cases;
    double grad, param; /* the worst */
} checked;

static checked check_of(const table *t)
{
    checked c = {0, 0, 0};
    for (size_t i = 0; i < t->n; i++) {
        c.cases++;
        c.grad = fmax(c.grad, table_real(t, i, "err_grad"));
        c.param = fmax(c.param, table_real(t, i, "err_param"));
    }
    return c;
}

static void verified_rows(document *doc, const table *t, const char *variant)
{
    values ranks = table_values(t, "ranks"), precisions = table_values(t, "precision"),
           wires = table_values(t, "wire_dtype");
    for (size_t r = 0; r < ranks.n; r++)
        for (size_t p = 0; p < precisions.n; p++)
            for (size_t w = 0; w < wires.n; w++) {
                table *of = table_where(t, "variant", variant, "ranks", ranks.v[r], "precision", precisions.v[p],
                                        "wire_dtype", wires.v[w], NULL);
                const checked c = check_of(of);
                if (c.cases) {
                    doc_row(doc, variant, ranks.v[r], precisions.v[p], wires.v[w], NULL);
                    doc_cell(doc, "%zu", c.cases);
                    doc_cells(doc, number(c.grad), number(c.param), NULL);
                }
                table_free(of);
            }
    values_free(&wires);
    values_free(&precisions);
    values_free(&ranks);
}

/* Those that were checked, and went well or, with `status` "fail", did not. Rows of one device. */
static table *checked_rows(const table *t, const char *status, const char *const *variants)
{
    table *s = table_where(t, "status", status, "device", course_device(t), NULL);
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++)
        if (names_have(variants, table_text(s, i, "variant")) && strcmp(table_text(s, i, "check"), "0") != 0 &&
            (strcmp(status, "ok") != 0 || isfinite(table_real(s, i, "err_grad"))))
            s->rows[kept++] = s->rows[i];
    s->n = kept;
    return s;
}

void say_verified(document *doc, const char *dir, const char *file, const char *const *variants)
{
    table *t = open_result(dir, file);
    if (!t)
        return;
    table *passed = checked_rows(t, "ok", variants), *failed = checked_rows(t, "fail", variants);
    const size_t cases = passed->n + failed->n;
    if (passed->n) {
        doc_table(doc);
        doc_columns(doc, DOC_TEXT, "variant", NULL);
        doc_columns(doc, DOC_NUMBER, "ranks", NULL);
        doc_columns(doc, DOC_TEXT, "precision", "gradients", NULL);
        doc_columns(doc, DOC_NUMBER, "cases", "gradients off by", "parameters off by", NULL);
        for (const char *const *v = variants; *v; v++)
            verified_rows(doc, passed, *v);
    }
    if (cases)
        doc_paragraph(doc, "%zu of %zu cases%s agree with one rank that computes everything", passed->n, cases,
                      strcmp(course_device(t), "cpu") == 0 ? ", on CPUs," : "");
    if (cases && !failed->n)
        doc_more(doc, ".");
    else if (cases)
        doc_more(doc, "; first to fail: %s.", table_text(failed, 0, "reason"));
    if (passed->n)
        doc_more(doc, " Errors are those of the worst tensor: of summed gradients the relative L2 error, of parameters "
                      "after three steps the difference over how far they moved.");
    table_free(failed);
    table_free(passed);
    table_free(t);
}

/* ---- the group ---- */

static bool has_all(const ddp_rows *r, size_t first, size_t end, const char *const *variants)
{
    for (const char *const *v = variants; *v; v++)
        if (!ddp_best(r, first, end, *v, NULL))
            return false;
    return true;
}

/* A GPU before a CPU, the size with the most rows before others, then the group with the most rows, then bf16. */
static bool stands_before(const ddp_rows *r, size_t a, size_t b)
{
    const size_t at[] = {a, b};
    double score[2][4];
    for (size_t i = 0; i < 2; i++) {
        const ddp_entry *e = &r->all[at[i]];
        score[i][0] = ddp_on_gpu(e);
        score[i][1] = strcmp(ddp_text(e, "size"), ddp_main_size(r)) == 0;
        score[i][2] = (double)(ddp_group_end(r, at[i]) - at[i]);
        score[i][3] = strcmp(ddp_text(e, "precision"), "bf16") == 0;
    }
    return comes_before(score[0], score[1], 4);
}

bool course_group(const ddp_rows *r, const char *const *variants, size_t *first, size_t *end)
{
    bool found = false;
    for (size_t at = 0, behind; at < r->n; at = behind) {
        behind = ddp_group_end(r, at);
        if (!has_all(r, at, behind, variants) || (found && !stands_before(r, at, *first)))
            continue;
        found = true;
        *first = at;
        *end = behind;
    }
    return found;
}

/* ---- steps ---- */

double course_share_pct(const ddp_entry *e)
{
    return 100 * e->exposed / ddp_step_ms(e);
}

void begin_strategies(document *doc, const ddp_entry *e)
{
    char *title = ddp_group_title(e);
    doc_paragraph(doc, "%s:", title);
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "strategy", NULL);
    doc_columns(doc, DOC_NUMBER, "calls", "step ms", "communication ms [95 %]", "of the step %", "alone ms", NULL);
    free(title);
}

void add_strategy(document *doc, const ddp_entry *e)
{
    doc_row(doc, e->label, ddp_text(e, "buckets"), precise(ddp_step_ms(e)), with_interval(e),
            number(course_share_pct(e)), precise(ddp_real(e, "comm_alone_ms")), NULL);
}

void add_step_against(document *doc, const ddp_entry *e, const ddp_entry *base)
{
    const double step = ddp_step_ms(e), of = ddp_step_ms(base), more = step - of;
    if (!ddp_beside(e, base))
        doc_more(doc, " %s and %s are of different runs and are not compared.", code("%s", e->label),
                 code("%s", base->label));
    else
        doc_more(doc, " The step of %s is %s ms (%s %%) %s than that of %s (5th to 95th percentiles %s).",
                 code("%s", e->label), precise(fabs(more)), number(100 * fabs(more) / of),
                 more > 0 ? "longer" : "shorter", code("%s", base->label),
                 ddp_steps_apart(e, base) ? "don't meet" : "meet");
}
