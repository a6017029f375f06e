/* SPDX-License-Identifier: MIT */
/* The README's table: every bench of a machine, the question it answers and its newest row. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/report/sections.h"

typedef struct shown_column {
    const char *column, *what, *unit; /* unit "bytes" becomes MiB or GiB */
} shown_column;

/* One entry per bench, in the order of the table. Columns without a number in the row are left out. */
static const struct entry {
    const char *bench, *question;
    shown_column columns[6];
} entries[] = {
    {"bench_roofline", "What is the most this machine can do?", {{"tflops", "", "TFLOP/s"}, {"gb_s", "", "GB/s"}}},
    {"bench_attention",
     "What does attention cost in time and memory?",
     {{"fwd_ms", "forward", "ms"}, {"bwd_ms", "backward", "ms"}, {"peak_bytes", "peak", "bytes"}}},
    {"bench_flash",
     "How fast is FlashAttention?",
     {{"fwd_ms", "forward", "ms"},
      {"fwd_tflops", "=", "TFLOP/s"},
      {"bwd_ms", "backward", "ms"},
      {"bwd_tflops", "=", "TFLOP/s"},
      {"peak_bytes", "peak", "bytes"}}},
    {"bench_transformer",
     "How long does a training step take?",
     {{"step_ms", "step", "ms"}, {"tokens_per_s", "=", "tokens/s"}, {"mfu_causal_pct", "MFU", "%"}}},
    {"bench_mixed_precision",
     "What does low precision cost and give?",
     {{"step_ms", "step", "ms"},
      {"speedup_fwd", "forward", "times as fast as fp32"},
      {"speedup_bwd", "backward", "times"}}},
    {"bench_memory",
     "Where does every byte of a step go?",
     {{"peak_bytes", "peak", "bytes"},
      {"activation_bytes", "of it activations", "bytes"},
      {"largest_bytes", "largest allocation", "bytes"}}},
    {"bench_accounting",
     "What do memory and communication come to on paper?",
     {{"after_step_bytes", "held by a rank", "bytes"}, {"wire_bytes", "sent in a step", "bytes"}}},
    {"bench_allreduce", "How long does a collective take?", {{"median_ms", "", "ms"}, {"busbw_gb_s", "busbw", "GB/s"}}},
    {"bench_ddp_naive",
     "What does an all-reduce per gradient cost?",
     {{"step_ms", "step", "ms"}, {"exposed_ms", "exposed communication", "ms"}}},
    {"bench_ddp_flat",
     "What does a single all-reduce save?",
     {{"step_ms", "step", "ms"}, {"exposed_ms", "exposed communication", "ms"}}},
    {"bench_ddp_overlap",
     "How much communication hides beside the backward?",
     {{"step_ms", "step", "ms"}, {"exposed_ms", "exposed communication", "ms"}}},
    {"bench_ddp_bucketed",
     "Which bucket size is best?",
     {{"step_ms", "step", "ms"}, {"exposed_ms", "exposed communication", "ms"}}},
    {"bench_zero1",
     "What does it save to divide AdamW's state?",
     {{"step_ms", "step", "ms"}, {"after_step_bytes", "held by a rank", "bytes"}}},
};

/* What the row that is shown has, where rows of a bench differ in kind. */
static const char *const shown_only[][3] = {
    {"bench_roofline", "variant", "gemm"},      {"bench_roofline", "dtype", "bf16"},
    {"bench_flash", "deterministic", "0"},      {"bench_flash", "dtype", "bf16"},
    {"bench_transformer", "size", "xl"},        {"bench_transformer", "precision", "bf16"},
    {"bench_memory", "mode", "train-step"},     {"bench_allreduce", "variant", "all-reduce"},
    {"bench_ddp_naive", "variant", "naive"},    {"bench_ddp_flat", "variant", "flat"},
    {"bench_ddp_overlap", "seq", "512"},        {"bench_ddp_bucketed", "update", "buckets"},
    {"bench_ddp_bucketed", "seq", "512"},       {"bench_ddp_bucketed", "grad_dtype", "fp32"},
    {"bench_ddp_bucketed", "bucket_mb", "100"}, {"bench_zero1", "variant", "zero1"},
    {"bench_zero1", "grad_dtype", "fp32"}};

static bool is_shown(const table *t, size_t row, const char *bench)
{
    bool is = strcmp(table_text(t, row, "status"), "ok") == 0;
    for (size_t i = 0; i < sizeof shown_only / sizeof *shown_only; i++)
        if (strcmp(shown_only[i][0], bench) == 0)
            is = is && strcmp(table_text(t, row, shown_only[i][1]), shown_only[i][2]) == 0;
    return is;
}

/* Of those that is_shown; bench "": of all that are ok. */
static size_t newest_ok(const table *t, const char *bench)
{
    size_t newest = NO_ROW;
    for (size_t i = 0; i < t->n; i++)
        if (is_shown(t, i, bench) &&
            (newest == NO_ROW || strcmp(table_text(t, i, "utc"), table_text(t, newest, "utc")) > 0 ||
             (strcmp(table_text(t, i, "utc"), table_text(t, newest, "utc")) == 0 && t->rows[i] > t->rows[newest])))
            newest = i;
    return newest;
}

static size_t shown_row(const table *t, const char *bench)
{
    const size_t row = newest_ok(t, bench);
    return row == NO_ROW ? newest_ok(t, "") : row;
}

/* Makes *list "a, b" of what it has not got yet. */
static void add_to_list(char **list, const char *separator, const char *text)
{
    if (*list && strstr(*list, text))
        return;
    char *more = *list ? xasprintf("%s%s%s", *list, separator, text) : xstrdup(text);
    free(*list);
    *list = more;
}

static void print_row(FILE *out, const struct entry *e, const table *t, size_t row)
{
    char *what = table_case(t, row);
    fprintf(out, "| [%s](bench/%s.c) | %s | `%s`:", e->bench, e->bench, e->question, what);
    const char *separator = " ";
    for (const shown_column *c = e->columns; c->column; c++) {
        double value = table_real(t, row, c->column);
        if (value != value)
            continue;
        bool same = strcmp(c->what, "=") == 0;
        fprintf(out, "%s%s%s%s", same ? " = " : separator, same ? "" : c->what, same || !*c->what ? "" : " ",
                number_unit(value, c->unit));
        separator = ", ";
    }
    fprintf(out, " |\n");
    free(what);
}

/* Of the first folder that has a row; not all benches run on every machine, nor again for each commit. */
static bool print_entry(FILE *out, char *const *dirs, size_t count, const struct entry *e, char **machines,
                        char **commits)
{
    bool printed = false;
    char *name = xasprintf("%s.csv", e->bench);
    for (size_t d = 0; d < count && !printed; d++) {
        table *t = open_result(dirs[d], name);
        const size_t row = t ? shown_row(t, e->bench) : NO_ROW;
        if (row != NO_ROW) {
            table *one = table_where(t, "run_id", table_text(t, row, "run_id"), "utc", table_text(t, row, "utc"), NULL);
            char *caption = table_caption(one);
            print_row(out, e, t, row);
            add_to_list(machines, "; ", caption);
            add_to_list(commits, ", ", table_text(one, 0, "commit"));
            free(caption);
            table_free(one);
            printed = true;
        }
        table_free(t);
    }
    free(name);
    return printed;
}

static char *make_table(char *const *dirs, size_t count)
{
    char *text, *machines = NULL, *commits = NULL;
    size_t bytes, printed = 0;
    FILE *out = text_stream(&text, &bytes);
    fprintf(out, "| bench | question | one row |\n|---|---|---|\n");
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        printed += print_entry(out, dirs, count, &entries[i], &machines, &commits);
    if (printed)
        fprintf(out, "\nNewest rows, measured on %s, commit %s.\n", machines, commits);
    fclose(out);
    free(machines);
    free(commits);
    if (printed)
        return text;
    free(text);
    return NULL;
}

static char *read_text(const char *path)
{
    FILE *in = fopen(path, "r");
    char *text = NULL;
    size_t bytes = 0;
    if (in && getdelim(&text, &bytes, '\0', in) < 0) {
        free(text);
        text = NULL;
    }
    if (in)
        fclose(in);
    return text;
}

bool readme_update(char *const *dirs, size_t count, const char *readme)
{
    static const char begin[] = "<!-- begin table -->\n", end[] = "<!-- end table -->";
    char *table_of = make_table(dirs, count), *text = table_of ? read_text(readme) : NULL;
    char *first = text ? strstr(text, begin) : NULL, *last = first ? strstr(first, end) : NULL;
    char *partial = xasprintf("%s.partial", readme);
    bool done = false;
    if (!table_of) {
        warn("'%s'%s no row of a bench that went well", dirs[0], count > 1 ? " and the others have" : " has");
    } else if (!text) {
        warn("%s: %s", readme, errno ? strerror(errno) : "empty");
    } else if (!last) {
        warn("%s has no lines '<!-- begin table -->' and '%s'", readme, end);
    } else {
        FILE *out = fopen(partial, "w");
        if (out) {
            int written = fprintf(out, "%.*s%s%s", (int)(first - text + (long)strlen(begin)), text, table_of, last);
            done = fclose(out) == 0 && written > 0 && rename(partial, readme) == 0;
        }
        if (!done)
            warn("%s: %s", readme, strerror(errno));
    }
    free(partial);
    free(text);
    free(table_of);
    return done;
}
