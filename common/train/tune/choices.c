/* SPDX-License-Identifier: MIT */
/* The table of choices and its CSV file; see choices.h. */
#include "common/train/tune/choices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/csv.h"
#include "common/core/error.h"

struct choices {
    kept_choice *list; /* oldest first: shipped, of the file, of this run */
    int count, capacity;
    char *path;
};

int choices_find(const choices *c, const sb_matmul *shape, int below)
{
    for (int i = below < c->count ? below : c->count; i-- > 0;)
        if (products_same_shape(&c->list[i].shape, shape))
            return i;
    return -1;
}

int choices_count(const choices *c)
{
    return c->count;
}

const kept_choice *choices_at(const choices *c, int place)
{
    return &c->list[place];
}

static void append(choices *c, const kept_choice *choice)
{
    if (c->count == c->capacity) {
        c->capacity = c->capacity ? 2 * c->capacity : 64;
        c->list = xrealloc(c->list, (size_t)c->capacity * sizeof *c->list);
    }
    c->list[c->count++] = *choice;
}

void choices_settle(choices *c, const sb_matmul *shape)
{
    for (int i = choices_find(c, shape, c->count); i >= 0; i = choices_find(c, shape, i))
        memset(c->list[i].rivals, 0, sizeof c->list[i].rivals);
}

/* ---- the file ---- */

/* What products_same_shape compares, as columns. */
static const char *const shape_columns[] = {
    "m",   "n",   "k",    "dtype", "dtype_out", "transpose_a", "transpose_b", "lda",  "ldb",
    "ldc", "ldd", "adds", "split", "dtype_b",   "scaling_a",   "scaling_b",   "sums", "workspace_bytes"};
enum { SHAPE_COLUMNS = sizeof shape_columns / sizeof *shape_columns, FLOAT8_FIRST = 13, FLOAT8_LAST = 16 };

static void shape_values(const sb_matmul *p, double out[SHAPE_COLUMNS])
{
    const double values[SHAPE_COLUMNS] = {
        p->m,           p->n,       p->k,         p->dtype,          p->dtype_out, p->transpose_a,
        p->transpose_b, p->lda,     p->ldb,       p->c ? p->ldc : 0, p->ldd,       p->c != NULL,
        p->split,       p->dtype_b, p->scaling_a, p->scaling_b,      p->sums,      (double)p->workspace_bytes};
    memcpy(out, values, sizeof values);
}

/* The columns of float8 came later: a file without them has no such product. */
static bool has_float8(const csv *file)
{
    return csv_column(file, shape_columns[FLOAT8_FIRST]) >= 0;
}

/* False where a value is absent, or no number that fits. */
static bool read_shape(const csv *file, size_t row, sb_matmul *out)
{
    static const _Alignas(16) char something; /* a c whose values do not count */
    double v[SHAPE_COLUMNS];
    for (int i = 0; i < SHAPE_COLUMNS; i++) {
        const bool absent = i >= FLOAT8_FIRST && i <= FLOAT8_LAST && !has_float8(file);
        v[i] = absent ? 0 : csv_real(file, row, shape_columns[i]);
        if (!(v[i] >= 0 && v[i] <= (i == SHAPE_COLUMNS - 1 ? 0x1p53 : 0x7fffffff)))
            return false;
    }
    if (v[12] > SB_FP16X3 || v[3] > SB_E5M2 || v[13] > SB_E5M2 || v[14] > SB_SCALE_1X32 || v[15] > SB_SCALE_1X32 ||
        v[16] > SB_SUMS_FAST)
        return false;
    *out = (sb_matmul){.m = (int)v[0],
                       .n = (int)v[1],
                       .k = (int)v[2],
                       .dtype = (sb_dtype)v[3],
                       .dtype_out = (sb_dtype)v[4],
                       .transpose_a = v[5] != 0,
                       .transpose_b = v[6] != 0,
                       .lda = (int)v[7],
                       .ldb = (int)v[8],
                       .ldc = (int)v[9],
                       .ldd = (int)v[10],
                       .c = v[11] != 0 ? &something : NULL,
                       .split = (sb_fp32_products)v[12],
                       .dtype_b = (sb_dtype)v[13],
                       .scaling_a = (sb_scaling)v[14],
                       .scaling_b = (sb_scaling)v[15],
                       .sums = (sb_float8_sums)v[16],
                       .workspace_bytes = (size_t)v[17]};
    return true;
}

static bool read_hex(const char *text, unsigned char *out, size_t n)
{
    if (!text || strlen(text) != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (sscanf(text + 2 * i, "%2hhx", &out[i]) != 1)
            return false;
    return true;
}

static void write_one(const char *path, const char *product, const kept_choice *k)
{
    FILE *f = fopen(path, "a");
    if (!f)
        return;
    if (ftell(f) == 0) {
        fputs("product", f);
        for (int i = 0; i < SHAPE_COLUMNS; i++)
            fprintf(f, ",%s", shape_columns[i]);
        fputs(",library,algorithm_name,ms,first_ms,tried,algorithm\n", f);
    }
    double values[SHAPE_COLUMNS];
    char name[2 * sizeof k->choice.name];
    shape_values(&k->shape, values);
    csv_quote(k->choice.name, name, sizeof name);
    fputs(product, f);
    for (int i = 0; i < SHAPE_COLUMNS; i++)
        fprintf(f, ",%.0f", values[i]);
    fprintf(f, ",%lld,%s,%.6g,%.6g,%d,", (long long)k->choice.library, name, k->choice.ms, k->choice.first_ms,
            k->choice.tried);
    for (size_t i = 0; i < sizeof k->choice.algorithm; i++)
        fprintf(f, "%02x", k->choice.algorithm[i]);
    fputc('\n', f);
    fclose(f);
}

/* Takes over the rows that make sense, and writes them to another file unless that is NULL. */
static void read_all(choices *c, csv *file, choice_source source, const char *to)
{
    for (size_t row = 0; file && row < file->rows; row++) {
        const char *name = csv_cell(file, row, "algorithm_name");
        kept_choice k = {
            .choice = {.ms = (float)csv_real(file, row, "ms"), .first_ms = (float)csv_real(file, row, "first_ms")},
            .source = source};
        const double tried = csv_real(file, row, "tried"), library = csv_real(file, row, "library");
        if (!name || !(tried >= 1 && tried < 1e6) || !(library >= 0 && library < 0x1p53) ||
            !read_shape(file, row, &k.shape) ||
            !read_hex(csv_cell(file, row, "algorithm"), k.choice.algorithm, sizeof k.choice.algorithm))
            continue;
        k.choice.tried = (int)tried;
        k.choice.library = (int64_t)library;
        snprintf(k.choice.name, sizeof k.choice.name, "%s", name);
        append(c, &k);
        if (to)
            write_one(to, csv_cell(file, row, "product"), &k);
    }
    if (file)
        csv_free(file);
}

void choices_add(choices *c, const char *product, const kept_choice *choice)
{
    append(c, choice);
    if (c->path)
        write_one(c->path, product, choice);
}

/* A file of a build without float8 gets its columns, or rows to come would not fit its header. */
static void extend_file(const char *path)
{
    csv *file = csv_read(path);
    choices all = {.list = NULL};
    if (file && file->columns && !has_float8(file)) {
        remove(path);
        read_all(&all, file, CHOICE_KEPT, path);
        free(all.list);
    } else if (file) {
        csv_free(file);
    }
}

choices *choices_open(const char *gpu, const char *path, bool retune)
{
    choices *c = xcalloc(1, sizeof *c);
    const char *shipped = choices_shipped(gpu);
    c->path = path ? xstrdup(path) : NULL;
    if (path)
        extend_file(path);
    if (!retune && shipped)
        read_all(c, csv_parse(shipped), CHOICE_SHIPPED, NULL);
    if (!retune && path)
        read_all(c, csv_read(path), CHOICE_KEPT, NULL);
    return c;
}

void choices_free(choices *c)
{
    if (!c)
        return;
    free(c->list);
    free(c->path);
    free(c);
}
