/* SPDX-License-Identifier: MIT */
/* Problems of training in parts: the optimizer's state, and everything. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/report/sections/course/course.h"
#include "common/report/sections/course/ranks.h"

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

static double unit_of(double bytes)
{
    return bytes < 0.1 * GIB ? MIB : GIB;
}

static const char *unit_name(double unit)
{
    return unit == GIB ? "GiB" : "MiB";
}

/* ---- verified ---- */

static void zero1_verified(document *doc, const char *dir)
{
    say_verified(doc, dir, "bench_zero1.csv", NAMES("zero1-broadcast", "zero1"));
}

static void fsdp_verified(document *doc, const char *dir)
{
    say_verified(doc, dir, "bench_fsdp.csv", NAMES("fsdp"));
}

/* ---- the optimizer's state ---- */

static const char *const ways[] = {"unsharded", "zero1-broadcast", "zero1"};
enum { WHOLE, BROADCAST, ZERO1, WAYS };

/* The rows of the group that answers; BROADCAST may be NULL. */
static bool ways_of(const ddp_rows *r, const ddp_entry **e)
{
    size_t first, end;
    if (!r || !course_group(r, NAMES("unsharded", "zero1"), &first, &end))
        return false;
    for (size_t w = 0; w < WAYS; w++)
        e[w] = ddp_best(r, first, end, ways[w], NULL);
    return true;
}

static void begin_ways(document *doc, const ddp_entry *e)
{
    char *title = ddp_group_title(e);
    doc_paragraph(doc, "%s:", title);
    doc_table(doc);
    doc_columns(doc, DOC_TEXT, "way", NULL);
    free(title);
}

static void state_memory(document *doc, const char *dir)
{
    static const char *const columns[] = {"after_init_bytes", "before_step_bytes", "after_step_bytes",
                                          "param_bytes",      "grad_bytes",        "state_bytes"};
    const ddp_entry *e[WAYS];
    ddp_rows *r = ddp_rows_open(dir);
    if (ways_of(r, e)) {
        const double whole = ddp_real(e[WHOLE], "after_step_bytes"), parts = ddp_real(e[ZERO1], "after_step_bytes"),
                     unit = unit_of(whole);
        double off = 0;
        begin_ways(doc, e[WHOLE]);
        doc_column(doc, DOC_NUMBER, "after set-up, %s", unit_name(unit));
        doc_columns(doc, DOC_NUMBER, "before an update", "after one", "of it parameters", "gradients", "state", NULL);
        for (size_t w = 0; w < WAYS; w++) {
            if (!e[w])
                continue;
            doc_row(doc, ways[w], NULL);
            for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
                doc_cells(doc, number(ddp_real(e[w], columns[c]) / unit), NULL);
            off = fmax(off, fabs(ddp_real(e[w], "err_pct")));
        }
        doc_paragraph(
            doc,
            "On %s ranks a rank's state after an update is %s instead of %s %s, and all it holds %s instead of "
            "%s %s (%s %% less). The closed form is off by %s %% at most.",
            ddp_text(e[ZERO1], "ranks"), number(ddp_real(e[ZERO1], "state_bytes") / unit),
            number(ddp_real(e[WHOLE], "state_bytes") / unit), unit_name(unit), number(parts / unit),
            number(whole / unit), unit_name(unit), number(100 * (1 - parts / whole)), number(off));
    }
    ddp_rows_free(r);
}

static void state_time(document *doc, const char *dir)
{
    const ddp_entry *e[WAYS];
    ddp_rows *r = ddp_rows_open(dir);
    if (ways_of(r, e)) {
        begin_ways(doc, e[WHOLE]);
        doc_columns(doc, DOC_NUMBER, "step ms", "communication ms [95 %]", "AdamW alone ms", NULL);
        for (size_t w = 0; w < WAYS; w++)
            if (e[w])
                doc_row(doc, e[w]->label, precise(ddp_real(e[w], "step_ms")), with_interval(e[w]),
                        precise(ddp_real(e[w], "opt_alone_ms")), NULL);
        doc_paragraph(doc, "%s is the handout's, %s the paper's.", code("zero1-broadcast"), code("zero1"));
        for (size_t w = BROADCAST; w < WAYS; w++)
            if (e[w])
                add_step_against(doc, e[w], e[WHOLE]);
    }
    ddp_rows_free(r);
}

/* What a rank sends by the count of a ring; false where there are no rows of it. */
static bool add_paper(document *doc, const char *dir)
{
    static const char *const names[] = {"ddp", "zero1-broadcast", "zero1"};
    enum { NAMED = sizeof names / sizeof *names };
    table *t = open_result(dir, "bench_accounting.csv");
    size_t rows[NAMED], found = 0;
    for (size_t i = 0; t && i < NAMED; i++) {
        rows[i] = table_find(t, "variant", "zero", "status", "ok", "model", "xl", "ranks", "2", "recipe", "fp32",
                             "measured", "0", "strategy", names[i], NULL);
        found += rows[i] != NO_ROW;
    }
    for (size_t i = 0; found == NAMED && i < NAMED; i++)
        doc_more(doc, "%s %s by %s%s", i ? "," : " On paper a rank of two sends, with xl in fp32,",
                 number_unit(table_real(t, rows[i], "wire_bytes"), "bytes"), code("%s", names[i]),
                 i + 1 < NAMED ? "" : ".");
    table_free(t);
    return found == NAMED;
}

static void add_sent(document *doc, const ddp_entry *const *e)
{
    char *title = ddp_group_title(e[WHOLE]);
    doc_more(doc, " Measured (%s) it sends", title);
    for (size_t w = 0; w < WAYS; w++)
        if (e[w])
            doc_more(doc, "%s %s by %s", w ? "," : "", number_unit(ddp_real(e[w], "wire_bytes"), "bytes"),
                     code("%s", ways[w]));
    doc_more(doc, "; the collectives alone take");
    for (size_t w = 0; w < WAYS; w++)
        if (e[w])
            doc_more(doc, "%s %s", w ? "," : "", precise(ddp_real(e[w], "comm_alone_ms")));
    doc_more(doc, " ms.");
    free(title);
}

static void state_against_paper(document *doc, const char *dir)
{
    const ddp_entry *e[WAYS];
    ddp_rows *r = ddp_rows_open(dir);
    document *text = doc_create("");
    doc_paragraph(
        text, "The handout's way sums all gradients on every rank, as data parallelism does with 2 P (n - 1)/n "
              "elements sent, and then broadcasts all P updated parameters, which is P (n - 1)/n more. The paper's "
              "ZeRO-1 reduces each gradient "
              "to its owner alone and gathers the parameters: 2 P (n - 1)/n together. State is in parts in both, and "
              "both hold whole gradients here; ZeRO-2 would not.");
    const bool on_paper = add_paper(text, dir), measured = ways_of(r, e);
    if (measured)
        add_sent(text, e);
    if (on_paper || measured)
        doc_append(doc, text);
    else
        doc_free(text);
    ddp_rows_free(r);
}

/* ---- everything in parts ---- */

/* Options of bench_fsdp that the problem leaves alone; files of the time before have fewer. */
static bool is_plain(const table *t, size_t row)
{
    static const char *const plain[][2] = {{"prefetch", "1"},      {"free_every", "1"},
                                           {"gather", "nccl"},     {"micro_batches", "1"},
                                           {"clip", "0"},          {"reduce_dtype", "grad"},
                                           {"small", "sharded"},   {"recompute", "none"},
                                           {"offload", "none"},    {"moments", "policy"},
                                           {"loss_chunk", "0"},    {"d_model", "0"},
                                           {"layers", "0"},        {"heads_kv", "0"},
                                           {"update", "buckets"},  {"max_ctas", "0"},
                                           {"fusion", "kernels"},  {"overlap", "none"},
                                           {"mode", "train-step"}, {"attention", "flash"},
                                           {"deterministic", "0"}, {NULL, NULL}};
    return strcmp(table_text(t, row, "status"), "ok") == 0 && table_agrees(t, row, plain);
}

static bool alike(const table *t, size_t a, size_t b)
{
    static const char *const columns[] = {"ranks",     "size",       "batch",         "seq",
                                          "precision", "wire_dtype", "fp32_products", "device"};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (strcmp(table_text(t, a, columns[i]), table_text(t, b, columns[i])) != 0)
            return false;
    return true;
}

static const char *const strategies[] = {"ddp", "zero1", "fsdp"};
enum { DDP, Z1, FSDP, STRATEGIES };

/* Of ddp and zero1, which have buckets of several sizes, the shortest step; how many of them there are. */
static int beside_fsdp(const table *t, size_t fsdp, size_t *rows)
{
    int found = 0;
    for (size_t s = 0; s < STRATEGIES; s++) {
        rows[s] = s == FSDP ? fsdp : NO_ROW;
        for (size_t i = 0; s != FSDP && i < t->n; i++)
            if (is_plain(t, i) && alike(t, i, fsdp) && strcmp(table_text(t, i, "variant"), strategies[s]) == 0 &&
                (rows[s] == NO_ROW || table_real(t, i, "step_ms") < table_real(t, rows[s], "step_ms")))
                rows[s] = i;
        found += s != FSDP && rows[s] != NO_ROW;
    }
    return found;
}

/* A GPU before a CPU, then fsdp with most to compare it with, then the largest model, then bf16. */
static bool stands_before(const table *t, size_t a, size_t b)
{
    const size_t row[] = {a, b};
    double score[2][4];
    size_t unused[STRATEGIES];
    for (size_t i = 0; i < 2; i++) {
        score[i][0] = strcmp(table_text(t, row[i], "device"), "cuda") == 0;
        score[i][1] = beside_fsdp(t, row[i], unused);
        score[i][2] = table_real(t, row[i], "params");
        score[i][3] = strcmp(table_text(t, row[i], "precision"), "bf16") == 0;
    }
    return comes_before(score[0], score[1], 4);
}

static double peak_of(const table *t, size_t row)
{
    return fmax(fmax(table_real(t, row, "forward_peak_bytes"), table_real(t, row, "backward_peak_bytes")),
                table_real(t, row, "update_peak_bytes"));
}

static void add_fsdp_against(document *doc, const table *t, size_t fsdp, size_t other)
{
    const char *name = table_text(t, other, "variant");
    if (other == NO_ROW)
        return;
    if (!table_beside(t, fsdp, t, other)) {
        doc_more(doc, " %s is of another run and is not compared.", code("%s", name));
        return;
    }
    const double held = table_real(t, fsdp, "after_step_bytes") / table_real(t, other, "after_step_bytes"),
                 peak = peak_of(t, fsdp) / peak_of(t, other),
                 step = table_real(t, fsdp, "step_ms") / table_real(t, other, "step_ms");
    doc_more(doc,
             " Against %s it holds %s times as much between steps and %s at the peak, and a step takes %s times as "
             "long.",
             code("%s", name), number(held), number(peak), number(step));
}

static void fsdp_accounting(document *doc, const char *dir)
{
    static const char *const memory[] = {"after_init_bytes",  "forward_peak_bytes", "backward_peak_bytes",
                                         "update_peak_bytes", "after_step_bytes",   "gathered_bytes"};
    table *t = open_result(dir, "bench_fsdp.csv");
    size_t fsdp = NO_ROW, rows[STRATEGIES];
    for (size_t i = 0; t && i < t->n; i++)
        if (is_plain(t, i) && strcmp(table_text(t, i, "variant"), "fsdp") == 0 &&
            isfinite(table_real(t, i, "step_ms")) && (fsdp == NO_ROW || stands_before(t, i, fsdp)))
            fsdp = i;
    if (fsdp != NO_ROW) {
        const double unit = unit_of(table_real(t, fsdp, "peak_bytes"));
        beside_fsdp(t, fsdp, rows);
        doc_paragraph(doc, "%s, batch %s per rank, S %s, %s, sums in %s, %s ranks%s; %s:", table_text(t, fsdp, "size"),
                      table_text(t, fsdp, "batch"), table_text(t, fsdp, "seq"), table_text(t, fsdp, "precision"),
                      table_text(t, fsdp, "wire_dtype"), table_text(t, fsdp, "ranks"),
                      strcmp(table_text(t, fsdp, "device"), "cpu") == 0 ? ", on CPUs" : "", unit_name(unit));
        doc_table(doc);
        doc_columns(doc, DOC_TEXT, "strategy", NULL);
        doc_columns(doc, DOC_NUMBER, "after set-up", "peak of forward", "of backward", "of update", "between steps",
                    "gathered in a step", "step ms", "communication ms", NULL);
        for (size_t s = 0; s < STRATEGIES; s++) {
            if (rows[s] == NO_ROW)
                continue;
            doc_row(doc, strategies[s], NULL);
            for (size_t c = 0; c < sizeof memory / sizeof *memory; c++)
                doc_cells(doc, number(table_real(t, rows[s], memory[c]) / unit), NULL);
            doc_cells(doc, precise(table_real(t, rows[s], "step_ms")), precise(table_real(t, rows[s], "exposed_ms")),
                      NULL);
        }
        doc_paragraph(doc, "With %s no rank has the whole model; a block's weights are gathered one block ahead.",
                      code("fsdp"));
        add_fsdp_against(doc, t, fsdp, rows[DDP]);
        add_fsdp_against(doc, t, fsdp, rows[Z1]);
    }
    table_free(t);
}

static const char zero[] = "ZeRO-1: the optimizer's state in parts", ran[] = "What ran";

const course_problem course_sharding[] = {
    {"optimizer_state_sharding", "2025, 2026", ran, zero1_verified},
    {"optimizer_state_sharding_accounting (a)", "2025, 2026", zero, state_memory},
    {"optimizer_state_sharding_accounting (b)", "2025, 2026", zero, state_time},
    {"optimizer_state_sharding_accounting (c)", "2025, 2026", zero, state_against_paper},
    {"fsdp", "2026", ran, fsdp_verified},
    {"fsdp_accounting", "2026", "Sharded training: nothing is whole on any rank", fsdp_accounting},
    {.name = NULL}};
