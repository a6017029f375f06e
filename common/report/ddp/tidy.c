/* SPDX-License-Identifier: MIT */
/* The rows of data parallelism as one tidy CSV, which the figures are drawn from; see ddp.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/report/ddp/ddp.h"

/* In the order of a bench's CSV, so that a table made of the file knows what its parameters are: what tells rows apart
 * stands before the first measured column. Of the rest bucket sizes and options are in the label already. */
static const char *const params[] = {
    "ranks",     "size",      "batch",           "seq",           "precision",    "mode",
    "attention", "recompute", "recompute_every", "fp32_products", "d_model",      "d_ff",
    "layers",    "heads",     "heads_kv",        "vocab",         "deterministic"};
static const char *const numbers[] = {"step_ms",
                                      "bucket_mb",
                                      "compute_ms",
                                      "exposed_ms",
                                      "exposed_lo_ms",
                                      "exposed_hi_ms",
                                      "tokens_per_s",
                                      "predicted_ms",
                                      "predicted_contention_ms",
                                      "predicted_best_mb",
                                      "param_bytes",
                                      "grad_bytes",
                                      "state_bytes",
                                      "predicted_after_bytes"};
/* From the step's begin to the end of forward, of backward, of waiting, of updates. */
static const char *const ends[] = {"forward_end_ms", "backward_end_ms", "tail_end_ms", "updates_end_ms"};
static const char *const origin[] = {"machine", "gpu", "device", "utc"};
#define COUNT(list) (sizeof list / sizeof *list)

static void put(FILE *out, const char *text, const char *separator)
{
    char *drawable = xstrdup(text);
    text_make_drawable(drawable);
    const size_t bytes = csv_quote(drawable, NULL, 0) + 1;
    char *quoted = xmalloc(bytes);
    csv_quote(drawable, quoted, bytes);
    fprintf(out, "%s%s", separator, quoted);
    free(quoted);
    free(drawable);
}

static void put_number(FILE *out, double value)
{
    if (isfinite(value))
        fprintf(out, ",%.9g", value);
    else
        fprintf(out, ",nan");
}

/* What was not measured takes no time: of a captured step waiting is a part of the updates. */
static void put_ends(FILE *out, const ddp_entry *e)
{
    const double tail = ddp_real(e, "tail_ms"), after = ddp_real(e, "after_ms");
    const double parts[COUNT(ends)] = {ddp_real(e, "fwd_ms"), ddp_real(e, "bwd_ms"), tail,
                                       isfinite(tail) ? ddp_real(e, "opt_ms") : after};
    double end = 0;
    for (size_t i = 0; i < COUNT(ends); i++) {
        end += parts[i] > 0 ? parts[i] : 0;
        put_number(out, end);
    }
}

static void put_names(FILE *out, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put(out, names[i], ",");
}

/* Options as one word, for a script to loop over. */
static char *word_of(const char *how)
{
    char *word = xstrdup(*how ? how : "plain");
    for (char *c = word; *c; c++)
        *c = *c == ' ' || *c == ':' ? '-' : *c;
    return word;
}

/* `place` counts the rows of a group, `best` marks the one that stands for its strategy, `main` those of
 * the size with the most rows. */
static void put_entry(FILE *out, const ddp_rows *r, const ddp_entry *e, size_t place, bool best)
{
    char *how = word_of(e->how);
    put(out, e->variant, "");
    put(out, ddp_text(e, "status"), ",");
    put(out, "", ",");
    for (size_t i = 0; i < COUNT(params); i++)
        put(out, ddp_text(e, params[i]), ",");
    put(out, e->wire, ",");
    put(out, e->label, ",");
    for (size_t i = 0; i < COUNT(numbers); i++)
        put_number(out, ddp_real(e, numbers[i]));
    put_ends(out, e);
    put_number(out, ddp_pytorch(r, e, "step_ms"));
    put(out, how, ",");
    fprintf(out, ",%zu,%d,%d", place, best, strcmp(ddp_text(e, "size"), ddp_main_size(r)) == 0);
    for (size_t i = 0; i < COUNT(origin); i++)
        put(out, ddp_text(e, origin[i]), ",");
    fputc('\n', out);
    free(how);
}

bool ddp_write(const ddp_rows *r, const char *path)
{
    FILE *out = fopen(path, "w");
    if (!out)
        return false;
    fputs("variant,status,reason", out);
    put_names(out, params, COUNT(params));
    fputs(",gradients,label", out);
    put_names(out, numbers, COUNT(numbers));
    put_names(out, ends, COUNT(ends));
    fputs(",pytorch_step_ms,how,place,best,main", out);
    put_names(out, origin, COUNT(origin));
    fputc('\n', out);
    for (size_t first = 0, end; first < r->n; first = end) {
        size_t place = 0;
        end = ddp_group_end(r, first);
        for (size_t i = first; i < end; i++)
            if (r->all[i].ok)
                put_entry(out, r, &r->all[i], ++place, ddp_best(r, first, end, r->all[i].variant, NULL) == &r->all[i]);
    }
    const bool wrote = !ferror(out);
    return fclose(out) == 0 && wrote;
}
