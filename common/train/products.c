/* SPDX-License-Identifier: MIT */
/* The matrix products of a step: noted while it is planned, tuned once, their choices kept in a CSV file. */
#include <stdio.h>
#include <string.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/train/step_internal.h"

/* The same algorithm serves both: shape, dtypes and layout are equal. */
static bool same(const sb_matmul *a, const sb_matmul *b)
{
    return a->dtype == b->dtype && a->dtype_out == b->dtype_out && a->transpose_a == b->transpose_a &&
           a->transpose_b == b->transpose_b && a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda &&
           a->ldb == b->ldb && a->ldd == b->ldd && !a->c == !b->c && (!a->c || a->ldc == b->ldc) &&
           a->split == b->split && a->workspace_bytes == b->workspace_bytes;
}

void product_note(trainer *t, const char *linear, const char *pass, const sb_matmul *p)
{
    for (int i = 0; i < t->product_count; i++)
        if (same(&t->products[i].shape, p))
            return;
    if (t->product_count == PRODUCTS_MAX)
        die(EXIT_CODE_FAILURE, "bug: a step has more than %d different products", PRODUCTS_MAX);
    tuned_product *n = &t->products[t->product_count++];
    *n = (tuned_product){.shape = *p};
    snprintf(n->name, sizeof n->name, "%s %s", linear, pass);
}

int trainer_products(const trainer *t, const tuned_product **out)
{
    *out = t->products;
    return t->product_count;
}

/* ---- the file ---- */

/* What `same` compares, as columns of the file. */
static const char *const shape_columns[] = {
    "m",   "n",   "k",   "dtype", "dtype_out", "transpose_a", "transpose_b",
    "lda", "ldb", "ldc", "ldd",   "adds",      "split",       "workspace_bytes"};
enum { SHAPE_COLUMNS = sizeof shape_columns / sizeof *shape_columns };

static void shape_values(const sb_matmul *p, double out[SHAPE_COLUMNS])
{
    const double values[SHAPE_COLUMNS] = {p->m,           p->n,
                                          p->k,           p->dtype,
                                          p->dtype_out,   p->transpose_a,
                                          p->transpose_b, p->lda,
                                          p->ldb,         p->c ? p->ldc : 0,
                                          p->ldd,         p->c != NULL,
                                          p->split,       (double)p->workspace_bytes};
    memcpy(out, values, sizeof values);
}

static bool hex_read(const char *text, unsigned char *out, size_t n)
{
    if (!text || strlen(text) != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (sscanf(text + 2 * i, "%2hhx", &out[i]) != 1)
            return false;
    return true;
}

/* The newest line of the file for this shape. */
static bool file_find(const csv *file, const sb_matmul *p, sb_matmul_choice *out)
{
    double values[SHAPE_COLUMNS];
    shape_values(p, values);
    for (size_t row = file ? file->rows : 0; row-- > 0;) {
        int i = 0;
        while (i < SHAPE_COLUMNS && csv_real(file, row, shape_columns[i]) == values[i])
            i++;
        sb_matmul_choice c = {.ms = (float)csv_real(file, row, "ms"),
                              .first_ms = (float)csv_real(file, row, "first_ms"),
                              .tried = (int)csv_real(file, row, "tried"),
                              .library = (int64_t)csv_real(file, row, "library")};
        const char *name = csv_cell(file, row, "algorithm_name");
        if (i < SHAPE_COLUMNS || !name || !hex_read(csv_cell(file, row, "algorithm"), c.algorithm, sizeof c.algorithm))
            continue;
        snprintf(c.name, sizeof c.name, "%s", name);
        *out = c;
        return true;
    }
    return false;
}

/* A file that can't be written is no failure: the choice is in use all the same. */
static void file_add(const char *path, const tuned_product *n)
{
    FILE *f = path ? fopen(path, "a") : NULL;
    if (!f)
        return;
    if (ftell(f) == 0) {
        fputs("product", f);
        for (int i = 0; i < SHAPE_COLUMNS; i++)
            fprintf(f, ",%s", shape_columns[i]);
        fputs(",library,algorithm_name,ms,first_ms,tried,algorithm\n", f);
    }
    double values[SHAPE_COLUMNS];
    char name[2 * sizeof n->choice.name];
    shape_values(&n->shape, values);
    csv_quote(n->choice.name, name, sizeof name);
    fputs(n->name, f);
    for (int i = 0; i < SHAPE_COLUMNS; i++)
        fprintf(f, ",%.0f", values[i]);
    fprintf(f, ",%lld,%s,%.6g,%.6g,%d,", (long long)n->choice.library, name, n->choice.ms, n->choice.first_ms,
            n->choice.tried);
    for (size_t i = 0; i < sizeof n->choice.algorithm; i++)
        fprintf(f, "%02x", n->choice.algorithm[i]);
    fputc('\n', f);
    fclose(f);
}

/* ---- tuning ---- */

typedef struct operands {
    size_t a, b, c, d; /* bytes */
} operands;

static operands operands_of(const sb_matmul *p)
{
    const size_t in = (size_t)sb_dtype_bytes(p->dtype), out = (size_t)sb_dtype_bytes(p->dtype_out);
    return (operands){(size_t)p->lda * (size_t)(p->transpose_a ? p->k : p->m) * in,
                      (size_t)p->ldb * (size_t)(p->transpose_b ? p->n : p->k) * in,
                      p->c ? (size_t)p->ldc * (size_t)p->m * out : 0, (size_t)p->ldd * (size_t)p->m * out};
}

static sb_dtype stored(sb_dtype t)
{
    return t == SB_TF32 ? SB_FP32 : t;
}

/* Random operands of its own for one product: those of the step may not fit beside each other, or be zeros. */
static sb_status tune(trainer *t, tuned_product *n, sb_matmul_choice *rivals)
{
    sb_matmul p = n->shape;
    const operands o = operands_of(&p);
    const size_t bytes[5] = {o.a, o.b, o.c, o.d, p.workspace_bytes};
    void *memory[5] = {0};
    sb_status s = SB_OK;
    for (int i = 0; i < 5 && s == SB_OK; i++)
        if (bytes[i] && !(memory[i] = memory_alloc(t->mem, bytes[i], "operands of tuning")))
            s = SB_NO_MEMORY;
    for (int i = 0; i < 3 && s == SB_OK; i++) {
        const sb_dtype dtype = stored(i < 2 ? p.dtype : p.dtype_out);
        if (bytes[i])
            s = t->k->fill_normal(t->ctx, dtype, memory[i], bytes[i] / (size_t)sb_dtype_bytes(dtype), t->o.seed,
                                  (uint32_t)(1000 + i), 1, t->main);
    }
    p.a = memory[0], p.b = memory[1], p.c = memory[2], p.d = memory[3], p.workspace = memory[4];
    if (s == SB_OK)
        s = t->k->train->matmul_tune(t->ctx, &p, &n->choice, rivals, RIVALS, t->main);
    device_sync(t->dev);
    for (int i = 0; i < 5; i++)
        memory_release(t->mem, memory[i]);
    return s;
}

/* False on an error other than a lack of memory; then the library's own proposal serves. */
static bool tune_one(trainer *t, tuned_product *n, const csv *file, const char *path)
{
    n->cached =
        file_find(file, &n->shape, &n->choice) && t->k->train->matmul_choose(t->ctx, &n->shape, &n->choice) == SB_OK;
    if (n->cached)
        return true;
    phase_set("tuning %s: %d x %d x %d", n->name, n->shape.m, n->shape.n, n->shape.k);
    n->choice = (sb_matmul_choice){0};
    const sb_status s = tune(t, n, t->rivals[n - t->products]);
    if (s == SB_OK)
        file_add(path, n);
    else if (s == SB_NO_MEMORY)
        memory_failed_clear(t->mem);
    return s == SB_OK || s == SB_NO_MEMORY;
}

static void keep_choice(void *user, const tuned_product *p)
{
    file_add(user, p);
}

bool trainer_tune(trainer *t, const char *cache)
{
    csv *file = cache ? csv_read(cache) : NULL;
    bool ok = true;
    for (int i = 0; i < t->product_count && ok; i++)
        if (!t->products[i].choice.tried)
            ok = tune_one(t, &t->products[i], file, cache);
    if (file)
        csv_free(file);
    memory_trim(t->mem); /* the operands */
    return ok && overlap_tune(t) && products_race(t, keep_choice, (void *)cache);
}
