/* SPDX-License-Identifier: MIT */
/* The rows of five benches as one list in an order for reading; see ddp.h. */
#include "common/report/ddp/ddp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/model/config.h"
#include "common/model/precision.h"
#include "common/report/results.h"

static const char *const files[DDP_FILES] = {"bench_ddp_naive.csv", "bench_ddp_flat.csv", "bench_ddp_overlap.csv",
                                             "bench_ddp_bucketed.csv", "bench_zero1.csv"};
static const char *const strategies[] = {"naive",           "naive-grouped", "flat",      "flat-copy",
                                         "overlap",         "bucketed",      "unsharded", "zero1",
                                         "zero1-broadcast", "fused",         NULL};
/* What makes a group beside size, precision and wire dtype; the first ones sort it. */
static const char *const group_columns[] = {
    "batch",    "ranks",         "seq",           "mode",    "attention", "recompute", "recompute_every",
    "offload",  "offload_every", "fp32_products", "d_model", "d_ff",      "layers",    "heads",
    "heads_kv", "vocab",         "deterministic", "device",  NULL};

/* ---- order ---- */

static int place_in(const char *const *names, const char *name)
{
    int i = 0;
    while (names[i] && strcmp(names[i], name) != 0)
        i++;
    return i;
}

static int size_place(const char *size)
{
    int i = 0;
    while (model_sizes[i].name && strcmp(model_sizes[i].name, size) != 0)
        i++;
    return i;
}

static int precision_place(const char *name)
{
    const char *at = strstr(PRECISION_CHOICES, name);
    return at ? (int)(at - PRECISION_CHOICES) : (int)sizeof PRECISION_CHOICES;
}

static int compare_column(const ddp_entry *a, const ddp_entry *b, const char *column)
{
    const double x = ddp_real(a, column), y = ddp_real(b, column);
    return isfinite(x) && isfinite(y) ? (x > y) - (x < y) : strcmp(ddp_text(a, column), ddp_text(b, column));
}

static int compare_groups(const ddp_entry *a, const ddp_entry *b)
{
    int order = size_place(ddp_text(a, "size")) - size_place(ddp_text(b, "size"));
    for (size_t i = 0; !order && i < 2; i++)
        order = compare_column(a, b, group_columns[i]);
    if (!order)
        order = precision_place(ddp_text(a, "precision")) - precision_place(ddp_text(b, "precision"));
    if (!order)
        order = strcmp(a->wire, b->wire);
    for (size_t i = 2; !order && group_columns[i]; i++)
        order = compare_column(a, b, group_columns[i]);
    return order;
}

static int compare_entries(const void *x, const void *y)
{
    const ddp_entry *a = x, *b = y;
    int order = compare_groups(a, b);
    if (!order)
        order = place_in(strategies, a->variant) - place_in(strategies, b->variant);
    if (!order)
        order = strcmp(a->how, b->how);
    return order ? order : compare_column(a, b, "bucket_mb");
}

/* ---- the list ---- */

/* A row that did not go well has no wire dtype yet. */
static const char *wire_of(const table *t, size_t row)
{
    const char *wire = table_text(t, row, "wire_dtype"), *policy = table_text(t, row, "precision");
    if (*wire)
        return wire;
    if (strcmp(table_text(t, row, "grad_dtype"), "fp32") == 0 || strstr(policy, "32"))
        return "fp32";
    return strcmp(policy, "fp16") ? "bf16" : "fp16";
}

static void add_rows(ddp_rows *r, const table *t)
{
    for (size_t i = 0; i < t->n; i++) {
        const char *status = table_text(t, i, "status");
        if (strcmp(status, "skip") == 0)
            continue;
        ddp_entry *e = &r->all[r->n++];
        *e = (ddp_entry){.t = t,
                         .row = i,
                         .variant = table_text(t, i, "variant"),
                         .wire = wire_of(t, i),
                         .ok = strcmp(status, "ok") == 0};
        e->exposed = e->ok ? ddp_real(e, "exposed_ms") : NAN;
        e->low = e->ok ? ddp_real(e, "exposed_lo_ms") : NAN;
        e->high = e->ok ? ddp_real(e, "exposed_hi_ms") : NAN;
        ddp_name(e);
    }
}

static void entry_free(ddp_entry *e)
{
    free(e->how);
    free(e->label);
}

/* A table tells cases apart by columns that a row which failed does not have: here the newest is what counts. */
static void keep_newest(ddp_rows *r)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->n; i++) {
        ddp_entry *last = kept ? &r->all[kept - 1] : NULL;
        if (!last || compare_entries(last, &r->all[i]) != 0) {
            r->all[kept++] = r->all[i];
        } else if (strcmp(ddp_text(&r->all[i], "utc"), ddp_text(last, "utc")) >= 0) {
            entry_free(last);
            *last = r->all[i];
        } else {
            entry_free(&r->all[i]);
        }
    }
    r->n = kept;
}

ddp_rows *ddp_rows_open(const char *dir)
{
    ddp_rows *r = xcalloc(1, sizeof *r);
    size_t rows = 0;
    for (size_t f = 0; f < DDP_FILES; f++) {
        r->files[f] = open_result(dir, files[f]);
        rows += r->files[f] ? r->files[f]->n : 0;
    }
    r->all = xcalloc(rows ? rows : 1, sizeof *r->all);
    for (size_t f = 0; f < DDP_FILES; f++)
        if (r->files[f])
            add_rows(r, r->files[f]);
    if (!r->n) {
        ddp_rows_free(r);
        return NULL;
    }
    qsort(r->all, r->n, sizeof *r->all, compare_entries);
    keep_newest(r);
    r->pytorch = open_peer_rows(dir, "ddp");
    return r;
}

void ddp_rows_free(ddp_rows *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++)
        entry_free(&r->all[i]);
    for (size_t f = 0; f < DDP_FILES; f++)
        table_free(r->files[f]);
    csv_free(r->pytorch);
    free(r->all);
    free(r);
}

size_t ddp_group_end(const ddp_rows *r, size_t first)
{
    size_t end = first;
    while (end < r->n && compare_groups(&r->all[first], &r->all[end]) == 0)
        end++;
    return end;
}

bool ddp_on_gpu(const ddp_entry *e)
{
    return strcmp(ddp_text(e, "device"), "cuda") == 0;
}

double ddp_step_ms(const ddp_entry *e)
{
    return ddp_real(e, "step_ms");
}

static bool any_on_gpu(const ddp_rows *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (ddp_on_gpu(&r->all[i]))
            return true;
    return false;
}

const char *ddp_main_size(const ddp_rows *r)
{
    const bool on_gpus = any_on_gpu(r);
    const char *best = "";
    size_t most = 0;
    for (size_t i = 0; i < r->n; i++) {
        size_t count = 0;
        for (size_t k = 0; k < r->n; k++)
            count += ddp_same(&r->all[i], &r->all[k], "size") && ddp_on_gpu(&r->all[k]) == on_gpus;
        if (count > 0 && count >= most) { /* of equals the largest, which comes last */
            most = count;
            best = ddp_text(&r->all[i], "size");
        }
    }
    return best;
}

bool ddp_has_longer(const ddp_rows *r, const ddp_entry *e)
{
    for (size_t i = 0; i < r->n; i++) {
        const ddp_entry *other = &r->all[i];
        if (other->ok && ddp_is(other, e->variant) && ddp_same(other, e, "size") && ddp_same(other, e, "ranks") &&
            ddp_same(other, e, "precision") && strcmp(other->wire, e->wire) == 0 &&
            ddp_real(other, "seq") > ddp_real(e, "seq"))
            return true;
    }
    return false;
}

/* ---- choosing and comparing ---- */

const ddp_entry *ddp_best(const ddp_rows *r, size_t first, size_t end, const char *variant, size_t *of)
{
    const ddp_entry *best = NULL;
    size_t count = 0;
    for (int plain = 1; !best && plain >= 0; plain--)
        for (size_t i = first; i < end; i++) {
            const ddp_entry *e = &r->all[i];
            if (!ddp_is(e, variant) || !isfinite(e->exposed) || (plain && *e->how))
                continue;
            count++;
            if (!best || e->exposed < best->exposed)
                best = e;
        }
    if (of)
        *of = count;
    return best;
}

const char *ddp_device(const ddp_rows *r, const char *dir)
{
    return r && any_on_gpu(r) ? "cuda" : main_device(dir);
}

bool ddp_beside(const ddp_entry *a, const ddp_entry *b)
{
    return table_beside(a->t, a->row, b->t, b->row);
}

bool ddp_apart(const ddp_entry *a, const ddp_entry *b)
{
    return a->high < b->low || b->high < a->low; /* false of an interval that is not there */
}

bool ddp_steps_apart(const ddp_entry *a, const ddp_entry *b)
{
    return ddp_real(a, "step_p5_ms") > ddp_real(b, "step_p95_ms") ||
           ddp_real(b, "step_p5_ms") > ddp_real(a, "step_p95_ms");
}
