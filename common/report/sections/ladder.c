/* SPDX-License-Identifier: MIT */
/* Feature by feature: what each makes of the step and of the memory of one model, on one GPU (bench_transformer) and on
 * several ranks (bench_fsdp). A line is a row of these benches; what it differs in from the others is in the table below. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/section.h"

enum { VARIED = 7, RUNGS = 15 };

/* Lines with `on` build on each other; the rest each stand beside the last of those. */
typedef struct rung {
    const char *text;
    bool on;
    const char *variant;        /* NULL: that of the last line before that stands */
    const char *values[VARIED]; /* of the ladder's columns */
} rung;

typedef struct ladder {
    const char *file, *title, *what;
    const char *columns[VARIED]; /* in which its lines differ, ended by NULL where there are fewer */
    rung rungs[RUNGS];           /* ended by one without a text */
} ladder;

static const ladder ladders[] = {
    {"bench_transformer.csv",
     "One GPU",
     "before the first step: parameters, master weights and moments",
     {"precision", "attention", "recompute", "moments", "offload"},
     {{"fp32, an eager framework's ops, unfused attention",
       true,
       "none",
       {"fp32", "unfused", "none", "policy", "none"}},
      {"+ bf16, master weights in fp32", true, "none", {"bf16", "unfused", "none", "policy", "none"}},
      {"+ flash attention", true, "none", {"bf16", "flash", "none", "policy", "none"}},
      {"+ fused kernels", true, "kernels", {"bf16", "flash", "none", "policy", "none"}},
      {"+ one CUDA graph", true, "graph", {"bf16", "flash", "none", "policy", "none"}},
      {"with norms and SwiGLU computed again", false, NULL, {"bf16", "flash", "selective", "policy", "none"}},
      {"with the attention half computed again", false, NULL, {"bf16", "flash", "attn", "policy", "none"}},
      {"with the feed-forward half computed again", false, NULL, {"bf16", "flash", "mlp", "policy", "none"}},
      {"with whole blocks computed again", false, NULL, {"bf16", "flash", "block", "policy", "none"}},
      {"with blocks' activations in the host's memory", false, NULL, {"bf16", "flash", "none", "policy", "block"}},
      {"with moments in bf16", false, NULL, {"bf16", "flash", "none", "bf16", "none"}},
      {"with weights and moments in bf16 alone", false, NULL, {"bf16-pure", "flash", "none", "policy", "none"}},
      {.text = NULL}}},
    {"bench_fsdp.csv",
     "Several ranks",
     "parameters, master weights and moments of a rank",
     {"precision", "grad_dtype", "recompute", "reduce_dtype", "small", "gather", "update"},
     {{"fp32, everything on every rank", true, "ddp", {"fp32", "policy", "none", "grad", "sharded", "nccl", "buckets"}},
      {"+ bf16, gradients in fp32", true, "ddp", {"bf16", "fp32", "none", "grad", "sharded", "nccl", "buckets"}},
      {"+ state in slices (ZeRO-1)", true, "zero1", {"bf16", "fp32", "none", "grad", "sharded", "nccl", "buckets"}},
      {"+ gradients in slices (ZeRO-2)", true, "zero2", {"bf16", "fp32", "none", "grad", "sharded", "nccl", "buckets"}},
      {"+ parameters in slices (FSDP)", true, "fsdp", {"bf16", "fp32", "none", "grad", "sharded", "nccl", "buckets"}},
      {"with gradients in bf16", false, NULL, {"bf16", "policy", "none", "grad", "sharded", "nccl", "buckets"}},
      {"with gradients sent in bf16", false, NULL, {"bf16", "fp32", "none", "bf16", "sharded", "nccl", "buckets"}},
      {"with whole blocks computed again",
       false,
       NULL,
       {"bf16", "fp32", "block", "grad", "sharded", "nccl", "buckets"}},
      {"with parameters kept after the forward",
       false,
       "fsdp-keep",
       {"bf16", "fp32", "none", "grad", "sharded", "nccl", "buckets"}},
      {"with gains of norms on every rank",
       false,
       NULL,
       {"bf16", "fp32", "none", "grad", "replicated", "nccl", "buckets"}},
      {"with gathers by copy engines", false, NULL, {"bf16", "fp32", "none", "grad", "sharded", "copy", "buckets"}},
      {"with updates beside the backward",
       false,
       NULL,
       {"bf16", "fp32", "none", "grad", "sharded", "nccl", "backward"}},
      {"with everything in fp32", false, NULL, {"fp32", "policy", "none", "grad", "sharded", "nccl", "buckets"}},
      {.text = NULL}}}};

typedef struct found {
    size_t row[RUNGS], below[RUNGS]; /* NO_ROW; the row that a line is compared with */
    size_t n, last;                  /* lines that are there; the last that the others stand beside, an index */
} found;

/* ---- which rows ---- */

/* Of a variant that a parameter means nothing to, its cell is empty; of the others the usual value counts. */
static bool agree(const char *name, const char *a, const char *b)
{
    static const char *const usual[][2] = {
        {"prefetch", "1"}, {"free_every", "1"}, {"gather", "nccl"}, {"replicas", "2"}};
    if (*a && *b)
        return strcmp(a, b) == 0;
    const char *value = *a ? a : b;
    for (size_t i = 0; *value && i < sizeof usual / sizeof *usual; i++)
        if (strcmp(name, usual[i][0]) == 0)
            return strcmp(value, usual[i][1]) == 0;
    return true;
}

static bool same_but(const table *t, size_t a, size_t b, const ladder *l)
{
    for (int c = t->first_param; c < t->end_param; c++) {
        const char *name = t->file->header[c];
        bool varied = false;
        for (size_t i = 0; i < VARIED; i++)
            varied = varied || (l->columns[i] && strcmp(name, l->columns[i]) == 0);
        if (!varied && !agree(name, table_text(t, a, name), table_text(t, b, name)))
            return false;
    }
    return strcmp(table_text(t, a, "device"), table_text(t, b, "device")) == 0;
}

static bool is_rung(const table *t, size_t row, const ladder *l, const rung *r, const char *variant)
{
    bool is = strcmp(table_text(t, row, "variant"), variant) == 0 && strcmp(table_text(t, row, "status"), "skip") != 0;
    for (size_t i = 0; i < VARIED && l->columns[i]; i++) {
        const char *value = table_text(t, row, l->columns[i]);
        if (!*value) /* it means nothing to the variant, or was no option then: as in the first line */
            value = l->rungs[0].values[i];
        is = is && strcmp(value, r->values[i]) == 0;
    }
    return is;
}

/* The lines beside row `like`; a machine without graphs has one less. */
static found find(const table *t, size_t like, const ladder *l)
{
    found f = {.n = 0};
    const char *variant = "";
    size_t last = NO_ROW;
    for (size_t k = 0; l->rungs[k].text; k++) {
        const rung *r = &l->rungs[k];
        f.row[k] = NO_ROW;
        f.below[k] = last;
        for (size_t i = 0; i < t->n && f.row[k] == NO_ROW; i++)
            if (is_rung(t, i, l, r, r->variant ? r->variant : variant) && same_but(t, like, i, l))
                f.row[k] = i;
        f.n += f.row[k] != NO_ROW;
        if (r->on && f.row[k] != NO_ROW) {
            last = f.row[k];
            f.last = k;
            variant = r->variant;
        }
    }
    return f;
}

static bool has_line(const found *f, const ladder *l, size_t row)
{
    for (size_t k = 0; l->rungs[k].text; k++)
        if (f->row[k] == row)
            return true;
    return false;
}

/* ---- what is said of them ---- */

static double before_steps(const table *t, size_t row)
{
    const double bytes = table_real(t, row, "init_bytes");
    return isfinite(bytes) ? bytes : table_real(t, row, "param_bytes") + table_real(t, row, "state_bytes");
}

static bool fits(const table *t, size_t row)
{
    return row != NO_ROW && strcmp(table_text(t, row, "status"), "ok") == 0;
}

static size_t first_that_fits(const table *t, const ladder *l, const found *f)
{
    size_t k = 0;
    while (l->rungs[k].text && !fits(t, f->row[k]))
        k++;
    return k;
}

/* By what factor a line's step is shorter than that of the line it is compared with; NAN where that says nothing. */
static double gain(const table *t, const found *f, size_t k)
{
    if (!fits(t, f->row[k]) || !fits(t, f->below[k]) || !table_beside(t, f->row[k], t, f->below[k]))
        return NAN;
    return table_real(t, f->below[k], "step_ms") / table_real(t, f->row[k], "step_ms");
}

static void add_table(document *doc, const table *t, const ladder *l, const found *f)
{
    double most = 0;
    for (size_t k = 0; l->rungs[k].text; k++)
        if (fits(t, f->row[k]))
            most = fmax(most, table_real(t, f->row[k], "peak_bytes"));
    const bool big = most > 0.5 * GIB;
    const double unit = big ? GIB : MIB;
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "feature", NULL);
    doc_column(doc, DOC_NUMBER, "at first %s", big ? "GiB" : "MiB");
    doc_column(doc, DOC_NUMBER, "peak %s", big ? "GiB" : "MiB");
    doc_columns(doc, DOC_NUMBER, "step ms", "times as fast", "tokens/s", "MFU %", NULL);
    for (size_t k = 0; l->rungs[k].text; k++) {
        const size_t row = f->row[k];
        if (row == NO_ROW)
            continue;
        doc_row(doc, l->rungs[k].text, NULL);
        if (fits(t, row))
            doc_cells(doc, number(before_steps(t, row) / unit), number(table_real(t, row, "peak_bytes") / unit),
                      number(table_real(t, row, "step_ms")), number(gain(t, f, k)),
                      number(table_real(t, row, "tokens_per_s")), number(table_real(t, row, "mfu_causal_pct")), NULL);
        else
            doc_cells(doc, "-", "-", table_text(t, row, "status"), NULL);
    }
}

/* From the first line that fits to the last that the others stand beside, and what gave most of it. */
static void say_all(document *doc, const table *t, const ladder *l, const found *f)
{
    const size_t first = first_that_fits(t, l, f);
    size_t best = RUNGS;
    for (size_t k = 0; k <= f->last; k++)
        if (isfinite(gain(t, f, k)) && (best == RUNGS || gain(t, f, k) > gain(t, f, best)))
            best = k;
    const size_t a = f->row[first], z = f->row[f->last];
    if (first >= f->last || best == RUNGS || !fits(t, z) || !table_beside(t, a, t, z))
        return;
    const double times = table_real(t, a, "step_ms") / table_real(t, z, "step_ms");
    const double less = table_real(t, a, "peak_bytes") - table_real(t, z, "peak_bytes");
    doc_paragraph(doc,
                  "From \"%s\" to \"%s\" the step becomes %s times as fast, and its peak %s %s.\nThe largest part is "
                  "\"%s\": %s times.",
                  l->rungs[first].text, l->rungs[f->last].text, number(times), number_unit(fabs(less), "bytes"),
                  less < 0 ? "larger" : "smaller", l->rungs[best].text, number(gain(t, f, best)));
}

/* What the lines that stand beside the last one cost and save. */
static void say_beside(document *doc, const table *t, const ladder *l, const found *f)
{
    for (size_t k = f->last + 1; l->rungs[k].text; k++) {
        if (!isfinite(gain(t, f, k)))
            continue;
        const double longer = 100 * (1 / gain(t, f, k) - 1);
        const double saved = table_real(t, f->below[k], "peak_bytes") - table_real(t, f->row[k], "peak_bytes");
        doc_bullet(doc, "\"%s\": %s %% %s time, %s%s at the peak.", l->rungs[k].text, number(fabs(longer)),
                   longer < 0 ? "less" : "more", saved != 0 ? number_unit(fabs(saved), "bytes") : "as much",
                   saved < 0   ? " more"
                   : saved > 0 ? " less"
                               : "");
    }
}

static void say_what_does_not_fit(document *doc, const table *t, const ladder *l, const found *f)
{
    for (size_t k = 0; l->rungs[k].text; k++)
        if (f->row[k] != NO_ROW && !fits(t, f->row[k]))
            doc_bullet(doc, "\"%s\": %s", l->rungs[k].text, table_text(t, f->row[k], "reason"));
}

static char *name_of(const table *t, size_t row)
{
    const char *ranks = table_text(t, row, "ranks");
    const bool cpu = strcmp(table_text(t, row, "device"), "cpu") == 0;
    return xasprintf("%s, S %s, batch %s%s%s%s%s", table_text(t, row, "size"), table_text(t, row, "seq"),
                     table_text(t, row, "batch"), *ranks ? " on each of " : "", ranks, *ranks ? " ranks" : "",
                     cpu ? " on the CPU" : "");
}

enum { FEWEST = 4 }; /* lines: fewer are no ladder */

typedef void use(document *doc, const table *t, const ladder *l, const found *f, const char *name);

/* Every ladder among the rows, once. */
static void for_each(document *doc, const char *dir, const ladder *l, use *each)
{
    table *all = open_result(dir, l->file);
    if (!all)
        return;
    table *t = table_where(all, "mode", "train-step", NULL);
    bool *done = xcalloc(t->n + 1, sizeof *done);
    for (size_t i = 0; i < t->n; i++) {
        const bool alone = strcmp(table_text(t, i, "ranks"), "1") == 0; /* slices of one are the whole */
        const found f = done[i] || alone ? (found){.n = 0} : find(t, i, l);
        if (f.n < FEWEST || !has_line(&f, l, i))
            continue;
        for (size_t k = 0; l->rungs[k].text; k++)
            if (f.row[k] != NO_ROW)
                done[f.row[k]] = true;
        char *name = name_of(t, i);
        each(doc, t, l, &f, name);
        free(name);
    }
    free(done);
    table_free(t);
    table_free(all);
}

static void add_finding(document *doc, const table *t, const ladder *l, const found *f, const char *name)
{
    const size_t a = first_that_fits(t, l, f), z = f->last;
    if (a >= z || !fits(t, f->row[z]) || !table_beside(t, f->row[a], t, f->row[z]))
        return;
    doc_bullet(doc, "%s (%s): %s ms and %s with \"%s\", %s ms and %s with all up to \"%s\", %s times as fast%s.",
               strong("Feature by feature"), name, number(table_real(t, f->row[a], "step_ms")),
               number_unit(table_real(t, f->row[a], "peak_bytes"), "bytes"), l->rungs[a].text,
               number(table_real(t, f->row[z], "step_ms")),
               number_unit(table_real(t, f->row[z], "peak_bytes"), "bytes"), l->rungs[z].text,
               number(table_real(t, f->row[a], "step_ms") / table_real(t, f->row[z], "step_ms")),
               table_steps_meet(t, f->row[a], f->row[z]) ? ", which is noise: the percentiles of the two meet" : "");
}

static void findings(document *doc, const char *dir)
{
    for (size_t i = 0; i < sizeof ladders / sizeof *ladders; i++)
        for_each(doc, dir, &ladders[i], add_finding);
}

static void write_ladder(document *doc, const table *t, const ladder *l, const found *f, const char *name)
{
    doc_heading(doc, 3, "%s: %s", l->title, name);
    doc_paragraph(doc,
                  "A line with + has all of the lines above it; one with \"with\" stands beside the last line with +. "
                  "%s is\n%s.",
                  code("at first"), l->what);
    add_table(doc, t, l, f);
    say_what_does_not_fit(doc, t, l, f);
    say_all(doc, t, l, f);
    say_beside(doc, t, l, f);
}

static void write_section(document *doc, const char *dir)
{
    document *parts = doc_create("");
    for (size_t i = 0; i < sizeof ladders / sizeof *ladders; i++)
        for_each(parts, dir, &ladders[i], write_ladder);
    if (doc_empty(parts)) {
        doc_free(parts);
        return;
    }
    doc_heading(doc, 2, "Feature by feature");
    figures(doc, dir, "ladder");
    doc_append(doc, parts);
}

const report_section section_ladder = {.order = 116, .findings = findings, .write = write_section};
