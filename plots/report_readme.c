/* The README's table: every bench of a machine, the question it answers and its newest row. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "plots/report_parts.h"

typedef struct shown_column {
    const char *column, *what, *unit; /* unit "bytes" becomes MiB or GiB */
} shown_column;

/* One entry a bench, in the order of the table. Columns without a number in the row are left out. */
static const struct entry {
    const char *bench, *question;
    shown_column columns[6];
} entries[] = {
    {"bench_roofline",
     "What can this machine do at best: GEMM by dtype, copy, launches, links between GPUs?",
     {{"time_us", "", "us"}, {"tflops", "=", "TFLOP/s"}, {"gb_s", "=", "GB/s"}}},
    {"bench_attention",
     "What does attention cost in time and memory: unfused, with a fused softmax, as flash?",
     {{"fwd_ms", "forward", "ms"},
      {"bwd_ms", "backward", "ms"},
      {"mem_before_bwd_bytes", "held before backward", "bytes"},
      {"peak_bytes", "peak", "bytes"}}},
    {"bench_flash",
     "How fast is FlashAttention, against unfused attention and this machine's own GEMM ceiling?",
     {{"fwd_ms", "forward", "ms"},
      {"fwd_tflops", "=", "TFLOP/s"},
      {"bwd_ms", "backward", "ms"},
      {"bwd_tflops", "=", "TFLOP/s"},
      {"peak_bytes", "peak", "bytes"}}},
    {"bench_transformer",
     "How long does a training step of a transformer take, and what share of the GPU does it use?",
     {{"step_ms", "step", "ms"},
      {"tokens_per_s", "=", "tokens/s"},
      {"mfu_causal_pct", "MFU", "%"},
      {"opt_tb_s", "AdamW alone", "TB/s"},
      {"peak_bytes", "peak", "bytes"}}},
    {"bench_mixed_precision",
     "What does low precision cost in accuracy and give in speed, and where does autocast stay in fp32?",
     {{"step_ms", "step", "ms"},
      {"speedup_fwd", "forward", "times as fast as fp32"},
      {"speedup_bwd", "backward", "times"},
      {"err_grad", "error of gradients", "relative to fp32"}}},
    {"bench_memory",
     "Where does every byte of a forward and of a whole training step go?",
     {{"peak_bytes", "peak", "bytes"},
      {"predicted_bytes", "closed form", "bytes"},
      {"activation_bytes", "activations at it", "bytes"},
      {"saved_per_block_bytes", "kept by a block", "bytes"},
      {"largest_bytes", "largest allocation", "bytes"}}},
    {"bench_accounting",
     "What do memory and communication of parallel training come to, on paper, step by step?",
     {{"init_bytes", "held by a rank after set-up", "bytes"},
      {"before_step_bytes", "before the first update", "bytes"},
      {"after_step_bytes", "from then on", "bytes"},
      {"wire_bytes", "sent in a step", "bytes"}}},
    {"bench_allreduce",
     "How long does it take ranks to add up a tensor, and to gather, scatter or broadcast one?",
     {{"median_ms", "", "ms"}, {"algbw_gb_s", "=", "GB/s"}, {"busbw_gb_s", "=", "GB/s on the bus"}}},
};

static size_t newest_ok(const table *t)
{
    size_t newest = NO_ROW;
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(table_text(t, i, "status"), "ok") == 0 &&
            (newest == NO_ROW || strcmp(table_text(t, i, "utc"), table_text(t, newest, "utc")) > 0 ||
             (strcmp(table_text(t, i, "utc"), table_text(t, newest, "utc")) == 0 && t->rows[i] > t->rows[newest])))
            newest = i;
    return newest;
}

static bool print_entry(FILE *out, const char *dir, const struct entry *e, char **caption, char **commits)
{
    char *name = xasprintf("%s.csv", e->bench);
    table *t = open_result(dir, name);
    free(name);
    size_t row = t ? newest_ok(t) : NO_ROW;
    if (row != NO_ROW) {
        table *one = table_where(t, "run_id", table_text(t, row, "run_id"), "utc", table_text(t, row, "utc"), NULL);
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
        free(*caption);
        *caption = table_caption(one);
        const char *commit = table_text(one, 0, "commit");
        if (!*commits || !strstr(*commits, commit)) { /* benches are not all run again for each commit */
            char *more = *commits ? xasprintf("%s, %s", *commits, commit) : xstrdup(commit);
            free(*commits);
            *commits = more;
        }
        table_free(one);
    }
    table_free(t);
    return row != NO_ROW;
}

static char *make_table(const char *dir)
{
    char *text, *caption = NULL, *commits = NULL;
    size_t bytes, printed = 0;
    FILE *out = text_stream(&text, &bytes);
    fprintf(out, "| binary | question | a row of it |\n|---|---|---|\n");
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        printed += print_entry(out, dir, &entries[i], &caption, &commits);
    if (printed)
        fprintf(out, "\nThe newest row of each, measured on %s, commit %s.\n", caption, commits);
    fclose(out);
    free(caption);
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

bool readme_update(const char *dir, const char *readme)
{
    static const char begin[] = "<!-- begin table -->\n", end[] = "<!-- end table -->";
    char *table_of = make_table(dir), *text = table_of ? read_text(readme) : NULL;
    char *first = text ? strstr(text, begin) : NULL, *last = first ? strstr(first, end) : NULL;
    char *partial = xasprintf("%s.partial", readme);
    bool done = false;
    if (!table_of) {
        warn("'%s' has no row of a bench that went well", dir);
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
