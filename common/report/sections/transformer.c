/* SPDX-License-Identifier: MIT */
/* bench_transformer in the report: what stands out, the table of sizes by context beside PyTorch, and the studies. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/model_peers.h"
#include "common/report/section.h"
#include "common/report/sections/course/rows.h"
#include "common/report/steady.h"
#include "common/report/sentences.h"

static const char *const axes[] = {"size", "seq", "precision", NULL};

/* The rows that say how long a step takes: those with the usual warm-up where there are any, none of a cold process. */
static table *warm_rows(const table *all)
{
    const bool known = csv_column(all->file, "cold") >= 0;
    table *tuned = known ? table_where(all, "cold", "0", NULL) : table_where(all, NULL);
    table *t = table_where(tuned, "warmup", "5", NULL);
    if (t->n) {
        table_free(tuned);
        return t;
    }
    table_free(t);
    return tuned;
}

static size_t row_of(const table *t, const char *variant, const char *size, const char *seq)
{
    return table_find(t, "variant", variant, "size", size, "seq", seq, NULL);
}

/* ---- in short ---- */

static void add_row_name(document *doc, const table *t, size_t row)
{
    doc_more(doc, "%s, S %s", table_text(t, row, "size"), table_text(t, row, "seq"));
}

/* What differs between the two sides under one name of a precision. */
static const char *policy_of(const char *precision)
{
    return strcmp(precision, "bf16") == 0
               ? "; its bf16 is autocast with fp32 weights, gradients and residual stream, ours "
                 "keeps these in bf16, the weights with a 16-bit remainder"
               : "";
}

static void add_peers(document *doc, const csv *c, const table *t)
{
    bool any = false, by_hand = false;
    for (size_t p = 0; p < MODEL_PEERS; p++) {
        double least = INFINITY, most = 0;
        for (size_t i = 0; i < t->n; i++) {
            const double ratio = model_peer_time(c, t, i, &model_peers[p]);
            if (isfinite(ratio)) {
                least = fmin(least, ratio);
                most = fmax(most, ratio);
            }
        }
        any = any || most > 0;
        by_hand = by_hand || (most > 0 && model_peers[p].precision);
        if (most > least)
            doc_more(doc, "; PyTorch (%s) takes at least %s and at most %s times as long", model_peers[p].named,
                     number(least), number(most));
        else if (most > 0)
            doc_more(doc, "; PyTorch (%s) takes %s times as long", model_peers[p].named, number(most));
    }
    if (any)
        doc_more(doc, "%s", policy_of(table_text(t, 0, "precision")));
    if (by_hand)
        doc_more(doc, "; its bf16 weights with fp32 master are written by hand, with the dtypes of ours");
    if (any && model_peers_eager_alone(c))
        doc_more(doc,
                 "; PyTorch ran in eager mode alone: its fastest mode (compiled, CUDA graphs) is not in this folder");
}

/* The model with the most parameters at its longest context. */
static size_t largest_case(const table *t)
{
    size_t best = largest(t, "params");
    for (size_t i = 0; i < t->n; i++)
        if (table_real(t, i, "params") == table_real(t, best, "params") &&
            table_real(t, i, "seq") > table_real(t, best, "seq"))
            best = i;
    return best;
}

/* The warm steps that differ in size, context and precision alone, with PyTorch's. */
typedef struct main_steps {
    table *all, *warm, *t; /* t: NULL when there is no file */
    values precisions;
    csv *theirs;
} main_steps;

static main_steps main_steps_open(const char *dir)
{
    main_steps s = {.all = open_result(dir, "bench_transformer.csv")};
    if (!s.all)
        return s;
    s.theirs = model_peers_open(dir);
    s.warm = warm_rows(s.all), s.t = table_main_slice(s.warm, axes, NULL);
    s.precisions = table_values(s.t, "precision");
    return s;
}

/* Of a precision those that went well, at the level that stands for the machine. */
static table *main_steps_in(const main_steps *s, const char *precision)
{
    return table_where(s->t, "precision", precision, "variant", main_level(s->t), "status", "ok", NULL);
}

static void main_steps_free(main_steps *s)
{
    values_free(&s->precisions);
    table_free(s->t);
    table_free(s->warm);
    csv_free(s->theirs);
    table_free(s->all);
}

static void findings(document *doc, const char *dir)
{
    main_steps s = main_steps_open(dir);
    char *shape = s.t ? table_shape(s.t, axes) : NULL;
    for (size_t i = 0; i < s.precisions.n; i++) {
        const char *precision = s.precisions.v[i];
        table *of = main_steps_in(&s, precision);
        size_t whole = largest_case(of), best = largest(of, "mfu_causal_pct");
        if (whole != NO_ROW) {
            doc_bullet(doc, "%s (%s): %s ms = %s tokens/s (", strong("Training step, %s", precision), shape,
                       number(table_real(of, whole, "step_ms")), number(table_real(of, whole, "tokens_per_s")));
            add_row_name(doc, of, whole);
            doc_more(doc, ")");
            if (best != NO_ROW) {
                doc_more(doc, ", MFU up to %s %% (", number(table_real(of, best, "mfu_causal_pct")));
                add_row_name(doc, of, best);
                doc_more(doc, ")");
            }
            add_peers(doc, s.theirs, of);
            doc_more(doc, ".");
        }
        table_free(of);
    }
    free(shape);
    main_steps_free(&s);
}

/* ---- the main table ---- */

static void mean_cell(document *doc, const table *t, size_t row, const char *part)
{
    char *mean = xasprintf("%s_mean_ms", part), *deviation = xasprintf("%s_std_ms", part);
    const double value = table_real(t, row, mean);
    if (strcmp(table_text(t, row, "status"), "ok") != 0)
        doc_cell(doc, "%s", table_text(t, row, "status"));
    else if (isfinite(value))
        doc_cell(doc, "%s ± %s", number(value), number(table_real(t, row, deviation)));
    else
        doc_cell(doc, "-");
    free(mean);
    free(deviation);
}

static void main_row(document *doc, const table *t, size_t row, const csv *theirs, const bool *with)
{
    doc_row(doc, table_text(t, row, "size"), table_text(t, row, "seq"), NULL);
    static const char *const parts[] = {"fwd", "bwd", "opt", "step"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        mean_cell(doc, t, row, parts[i]);
    doc_cells(doc, cell_number(t, row, "tokens_per_s", 1), cell_number(t, row, "tflops", 1), NULL);
    doc_cell(doc, "%s / %s", cell_number(t, row, "mfu_causal_pct", 1), number(table_real(t, row, "mfu_full_pct")));
    doc_cells(doc, cell_number(t, row, "ceiling_pct", 1), cell_number(t, row, "peak_bytes", GIB), NULL);
    for (size_t p = 0; p < MODEL_PEERS; p++) {
        const double time = with[p] ? model_peer_time(theirs, t, row, &model_peers[p]) : NAN;
        if (isfinite(time))
            doc_cell(doc, "%s / %s", number(time), number(model_peer_memory(theirs, t, row, &model_peers[p])));
        else if (with[p])
            doc_blank(doc);
    }
}

static void main_table(document *doc, const table *t, const char *level, const csv *theirs)
{
    bool with[MODEL_PEERS];
    values sizes = sizes_in_order(t), lengths = table_values(t, "seq");
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "size", NULL);
    doc_columns(doc, DOC_NUMBER, "S", "forward ms", "backward ms", "AdamW ms", "step ms", "tokens/s", "TFLOP/s",
                "MFU % causal / full", "% of GEMM ceiling", "peak GiB", NULL);
    for (size_t p = 0; p < MODEL_PEERS; p++)
        if ((with[p] = model_peer_has(theirs, t, &model_peers[p])))
            doc_column(doc, DOC_NUMBER, "PyTorch %s", model_peers[p].named);
    for (size_t i = 0; i < sizes.n; i++)
        for (size_t k = 0; k < lengths.n; k++) {
            size_t row = row_of(t, level, sizes.v[i], lengths.v[k]);
            if (row != NO_ROW)
                main_row(doc, t, row, theirs, with);
        }
    values_free(&sizes);
    values_free(&lengths);
}

/* AdamW moves bytes, whatever the context: its share says how far a step is from being bound by products. */
static void add_bounds(document *doc, const table *t, const char *level)
{
    table *ok = table_where(t, "status", "ok", "variant", level, NULL);
    size_t best = largest(ok, "opt_tb_s"), most = NO_ROW;
    double share = 0;
    for (size_t i = 0; i < ok->n; i++) {
        const double of = table_real(ok, i, "opt_alone_ms") / table_real(ok, i, "step_ms");
        if (of > share) {
            share = of;
            most = i;
        }
    }
    if (most != NO_ROW) {
        doc_paragraph(doc, "AdamW alone reaches %s TB/s and would take %.0f %% of the step of ",
                      number(table_real(ok, best, "opt_tb_s")), 100 * share);
        add_row_name(doc, ok, most);
        doc_more(doc, ". The share falls with every token more: where it is\nlarge, memory bounds the step; elsewhere, "
                      "matrix products do. The AdamW column is the part of it that is left after the\nbackward.");
    }
    table_free(ok);
}

/* ---- studies ---- */

static void fusion_table(document *doc, const table *t)
{
    static const char *const levels[] = {"none", "kernels", "graph"};
    values sizes = sizes_in_order(t), lengths = table_values(t, "seq");
    bool begun = false;
    for (size_t i = 0; i < sizes.n; i++)
        for (size_t k = 0; k < lengths.n; k++) {
            size_t rows[3], found = 0;
            for (size_t v = 0; v < 3; v++)
                found += (rows[v] = row_of(t, levels[v], sizes.v[i], lengths.v[k])) != NO_ROW;
            if (found < 2)
                continue;
            if (!begun) {
                doc_paragraph(doc, "What fusion gives, step ms (%s: an eager framework's ops)", code("none"));
                doc_table(doc);
                doc_columns(doc, DOC_TEXT, "size", NULL);
                doc_columns(doc, DOC_NUMBER, "S", "none", "kernels", "graph", "none / graph", NULL);
            }
            begun = true;
            doc_row(doc, sizes.v[i], lengths.v[k], NULL);
            for (size_t v = 0; v < 3; v++)
                doc_cells(doc, rows[v] == NO_ROW ? "" : cell_number(t, rows[v], "step_ms", 1), NULL);
            if (table_beside(t, rows[0], t, rows[2]))
                doc_cells(doc, number(table_real(t, rows[0], "step_ms") / table_real(t, rows[2], "step_ms")), NULL);
            else
                doc_blank(doc);
        }
    values_free(&sizes);
    values_free(&lengths);
}

/* A forward alone, a forward with its backward, and a whole step, where a case has several of them. */
static void mode_table(document *doc, const table *warm, const char *level)
{
    static const char *const mode_axes[] = {"size", "seq", "precision", "mode", NULL};
    static const char *const modes[] = {"forward", "forward-backward", "train-step"};
    enum { MODES = sizeof modes / sizeof *modes };
    table *slice = table_main_slice(warm, mode_axes, NULL), *t = table_where(slice, "variant", level, NULL);
    values precisions = table_values(t, "precision"), sizes = sizes_in_order(t), lengths = table_values(t, "seq");
    bool begun = false;
    for (size_t p = 0; p < precisions.n; p++)
        for (size_t i = 0; i < sizes.n * lengths.n; i++) {
            const char *size = sizes.v[i / lengths.n], *seq = lengths.v[i % lengths.n];
            size_t rows[MODES], found = 0;
            for (size_t m = 0; m < MODES; m++) {
                rows[m] = table_find(t, "precision", precisions.v[p], "size", size, "seq", seq, "mode", modes[m], NULL);
                found += rows[m] != NO_ROW;
            }
            if (found < 2)
                continue;
            if (!begun) {
                doc_heading(doc, 3, "Forward, backward and update");
                doc_paragraph(doc,
                              "Steps that do a part of the work, mean ± std ms: a forward alone keeps nothing for a "
                              "backward, and a forward with its\nbackward leaves the parameters as they are.");
                doc_table(doc);
                doc_columns(doc, DOC_TEXT, "precision", "size", NULL);
                doc_columns(doc, DOC_NUMBER, "S", "forward", "forward and backward", "train step", NULL);
            }
            begun = true;
            doc_row(doc, precisions.v[p], size, seq, NULL);
            for (size_t m = 0; m < MODES; m++)
                if (rows[m] == NO_ROW)
                    doc_blank(doc);
                else
                    mean_cell(doc, t, rows[m], "step");
        }
    values_free(&precisions);
    values_free(&sizes);
    values_free(&lengths);
    table_free(t);
    table_free(slice);
}

static void other_rows(document *doc, const table *t)
{
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "case", NULL);
    doc_columns(doc, DOC_NUMBER, "forward ms", "backward ms", "AdamW ms", "step ms", "by the host, mean ± std ms",
                "tokens/s", "MFU / HFU %", "peak GiB", NULL);
    for (size_t i = 0; i < t->n; i++) {
        char *name = table_case(t, i);
        doc_row(doc, name, cell_number(t, i, "fwd_ms", 1), cell_number(t, i, "bwd_ms", 1),
                cell_number(t, i, "opt_ms", 1), cell_number(t, i, "step_ms", 1), NULL);
        mean_cell(doc, t, i, "host_step");
        doc_cells(doc, cell_number(t, i, "tokens_per_s", 1), NULL);
        doc_cell(doc, "%s / %s", cell_number(t, i, "mfu_causal_pct", 1), number(table_real(t, i, "hfu_pct")));
        doc_cells(doc, cell_number(t, i, "peak_bytes", GIB), NULL);
        free(name);
    }
}

static bool same_but_warmup(const table *t, size_t a, size_t b)
{
    for (int c = t->first_param; c < t->end_param; c++) {
        const char *name = t->file->header[c];
        if (strcmp(name, "warmup") != 0 && strcmp(table_text(t, a, name), table_text(t, b, name)) != 0)
            return false;
    }
    return strcmp(table_text(t, a, "variant"), table_text(t, b, "variant")) == 0;
}

/* Cases that were measured after different numbers of warm-up steps. */
static void warmup_table(document *doc, const table *t)
{
    bool begun = false;
    for (size_t i = 0; i < t->n; i++) {
        bool several = false;
        for (size_t k = 0; k < t->n; k++)
            several = several || (k != i && same_but_warmup(t, i, k));
        if (!several)
            continue;
        if (!begun) {
            doc_heading(doc, 3, "Warm-up");
            doc_paragraph(doc, "Mean and standard deviation of the measured steps after different numbers of warm-up "
                               "steps. The last three columns are by\nthe host's clock.");
            if (table_find(t, "cold", "1", NULL) != NO_ROW)
                doc_paragraph(doc,
                              "cold=1 is a process of its own, whose first step neither a check nor tuning precedes.");
            say_warmup(doc, t, same_but_warmup);
            doc_table(doc);
            doc_columns(doc, DOC_TEXT, "case", NULL);
            doc_columns(doc, DOC_NUMBER, "forward ms", "backward ms", "step ms", "by the host ms", "median",
                        "first step ms", NULL);
        }
        begun = true;
        char *name = table_case(t, i);
        doc_row(doc, name, NULL);
        free(name);
        static const char *const parts[] = {"fwd", "bwd", "step", "host_step"};
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
            mean_cell(doc, t, i, parts[p]);
        doc_cells(doc, cell_number(t, i, "host_step_ms", 1), cell_number(t, i, "first_step_ms", 1), NULL);
    }
}

static const steady_part parts[] = {{.what = "",
                                     .unit = "ms",
                                     .burst = "step_ms",
                                     .sustained = "sustained_step_ms",
                                     .sm_mhz = "sustained_step_sm_mhz",
                                     .power_w = "sustained_step_power_w",
                                     .burst_j = "step_j",
                                     .sustained_j = "sustained_step_j",
                                     .burst_per_j = "tokens_per_j",
                                     .sustained_per_j = "sustained_tokens_per_j",
                                     .per_j = "tokens/J"},
                                    {0}};

static void write_section(document *doc, const char *dir)
{
    table *all = open_result(dir, "bench_transformer.csv");
    if (!all)
        return;
    csv *theirs = model_peers_open(dir);
    table *warm = warm_rows(all), *rest, *t = table_main_slice(warm, axes, &rest);
    const char *level = main_level(t);
    char *shape = table_shape(t, axes);
    doc_heading(doc, 2, "bench_transformer: a whole training step");
    doc_paragraph(doc,
                  "%s; %s. Times are means and standard deviations over the measured steps; tokens/s, TFLOP/s and MFU "
                  "are of the\nmedian step.%s",
                  shape, strcmp(level, "graph") ? "fused kernels launched one by one" : "the step is one CUDA graph",
                  theirs ? " The PyTorch columns are\nPyTorch's time / ours and its peak memory / ours at the same "
                           "shape, batch and precision: above 1, ours is faster or\nsmaller."
                         : "");
    figures(doc, dir, "transformer_");
    values precisions = table_values(t, "precision");
    for (size_t i = 0; i < precisions.n; i++) {
        table *of = table_where(t, "precision", precisions.v[i], NULL);
        doc_heading(doc, 3, "%s", precisions.v[i]);
        main_table(doc, of, level, theirs);
        add_bounds(doc, of, level);
        fusion_table(doc, of);
        table_free(of);
    }
    mode_table(doc, warm, level);
    steady_tables(doc, all, parts);
    warmup_table(doc, all);
    if (rest->n) {
        doc_fold(doc, "Scaling and other cases: %zu rows", rest->n);
        other_rows(doc, rest);
        doc_fold_end(doc);
    }
    values_free(&precisions);
    free(shape);
    table_free(rest);
    table_free(t);
    table_free(warm);
    csv_free(theirs);
    table_free(all);
}

/* Our update of the number of parameters that is nearest to theirs. */
static size_t nearest_update(const table *t, double params)
{
    size_t nearest = NO_ROW;
    for (size_t i = 0; i < t->n; i++)
        if (isfinite(table_real(t, i, "opt_tb_s")) &&
            (nearest == NO_ROW ||
             fabs(table_real(t, i, "params") - params) < fabs(table_real(t, nearest, "params") - params)))
            nearest = i;
    return nearest;
}

/* PyTorch updates as many fp32 parameters as it likes: rates are compared, of the traffic that either needs. */
static void compare_updates(comparisons *to, const table *fp32, const char *dir)
{
    csv *theirs = open_peer_rows(dir, "adamw");
    comparison *c = comparisons_begin(to, xstrdup("AdamW, fp32, by bytes per second"));
    for (size_t r = 0; theirs && r < theirs->rows; r++) {
        const size_t ours = nearest_update(fp32, csv_real(theirs, r, "params"));
        if (ours == NO_ROW)
            continue;
        const char *why = peer_refused(theirs, r, fp32, ours, "gb_s");
        char *where = xasprintf("%s million parameters, ours %s million", number(csv_real(theirs, r, "params") / 1e6),
                                number(table_real(fp32, ours, "params") / 1e6));
        if (why)
            comparison_refuse(c, why, "PyTorch fused", where);
        else
            comparison_add(c, ratio_of_one(1e3 * table_real(fp32, ours, "opt_tb_s") / csv_real(theirs, r, "gb_s")),
                           "PyTorch fused", where);
        free(where);
    }
    csv_free(theirs);
}

/* Steps as exact as fp32 by products of fp16 parts, which are no part of the main slice. */
static void compare_parts(comparisons *to, const main_steps *s)
{
    if (!s->t)
        return;
    table *parts = table_where(s->warm, "precision", "fp32", "fp32_products", "fp16x3", NULL),
          *alike = table_main_slice(parts, axes, NULL),
          *of = table_where(alike, "variant", main_level(s->t), "status", "ok", NULL);
    model_peers_compare(comparisons_begin(to, xstrdup("training step, fp32 by fp16 parts")), s->theirs, of);
    table_free(of);
    table_free(alike);
    table_free(parts);
}

static void compare(comparisons *to, const char *dir)
{
    main_steps s = main_steps_open(dir);
    for (size_t i = 0; i < s.precisions.n; i++) {
        table *of = main_steps_in(&s, s.precisions.v[i]);
        model_peers_compare(comparisons_begin(to, xasprintf("training step, %s", s.precisions.v[i])), s.theirs, of);
        if (strcmp(s.precisions.v[i], "fp32") == 0)
            compare_updates(to, of, dir);
        table_free(of);
    }
    compare_parts(to, &s);
    main_steps_free(&s);
}

static const readme_bench benches[] = {
    {.name = "bench_transformer",
     .order = 40,
     .question = "How long does a training step take?",
     .columns = {{"step_ms", "step", "ms"}, {"tokens_per_s", "=", "tokens/s"}, {"mfu_causal_pct", "MFU", "%"}},
     .only = {{"variant", "graph"},
              {"mode", "train-step"},
              {"recompute", "none"},
              {"cold", "0"},
              {"precision", "bf16"},
              {"size", "xl"},
              {"seq", "512"},
              {"moments", "policy"}}},
    {.name = NULL}};

const report_section section_transformer = {
    .order = 60, .findings = findings, .write = write_section, .compare = compare, .benches = benches};
