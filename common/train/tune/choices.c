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
    int trained;
    bool anew;
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

int choices_trained(choices *c)
{
    return c->trained++;
}

bool choices_anew(const choices *c)
{
    return c->anew;
}

static void append(choices *c, const kept_choice *choice)
{
    LIST_ADD(c->list, c->count, c->capacity, *choice);
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

/* The columns: what is absent in a file is 0 or empty there, and an empty cell is that of the row above, by which a shipped
 * file of rows in order is a third as long. A row with a rival's number is the rival of the newest choice of its shape. */
enum { PRODUCT, SHAPE, LIBRARY = SHAPE + SHAPE_COLUMNS, NAME, MS, FIRST_MS, TRIED, RIVAL, ALGORITHM, COLUMNS };

static const char *column_name(int column)
{
    static const char *const others[] = {"library", "algorithm_name", "ms", "first_ms", "tried", "rival", "algorithm"};
    return column == PRODUCT ? "product" : column < LIBRARY ? shape_columns[column - SHAPE] : others[column - LIBRARY];
}

/* A number of the row, 0 where the column is absent; false where it is none, or beyond `most`. */
static bool number(const char *cell, double most, double *out)
{
    char *end;
    *out = strtod(cell, &end);
    return !*end && *out >= 0 && *out <= most;
}

static bool read_shape(const char *const cells[COLUMNS], sb_matmul *out)
{
    static const _Alignas(16) char something; /* a c whose values do not count */
    double v[SHAPE_COLUMNS];
    for (int i = 0; i < SHAPE_COLUMNS; i++)
        if ((!*cells[SHAPE + i] && (i < FLOAT8_FIRST || i > FLOAT8_LAST)) ||
            !number(cells[SHAPE + i], i == SHAPE_COLUMNS - 1 ? 0x1p53 : 0x7fffffff, &v[i]))
            return false;
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

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Zeros behind the text. */
static bool read_hex(const char *text, unsigned char *out, size_t n)
{
    const size_t length = strlen(text);
    memset(out, 0, n);
    if (length == 0 || length % 2 || length > 2 * n)
        return false;
    for (size_t i = 0; i < length; i += 2) {
        const int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i / 2] = (unsigned char)(high << 4 | low);
    }
    return true;
}

static void add_rival(choices *c, const kept_choice *rival, int number)
{
    const int place = choices_find(c, &rival->shape, c->count);
    if (place >= 0 && number <= CHOICE_RIVALS && c->list[place].choice.library == rival->choice.library)
        c->list[place].rivals[number - 1] = rival->choice;
}

static void read_row(choices *c, const char *const cells[COLUMNS], choice_source source)
{
    double library, tried, rival, ms, first_ms;
    kept_choice k = {.source = source};
    if (!number(cells[LIBRARY], 0x1p53, &library) || !number(cells[TRIED], 1e6, &tried) ||
        !number(cells[RIVAL], 1e6, &rival) || !number(cells[MS], 1e9, &ms) ||
        !number(cells[FIRST_MS], 1e9, &first_ms) || !read_shape(cells, &k.shape) ||
        !read_hex(cells[ALGORITHM], k.choice.algorithm, sizeof k.choice.algorithm))
        return;
    k.choice.ms = (float)ms, k.choice.first_ms = (float)first_ms;
    k.choice.tried = tried >= 1 ? (int)tried : 1;
    k.choice.library = (int64_t)library;
    snprintf(k.choice.name, sizeof k.choice.name, "%s", cells[NAME]);
    snprintf(k.product, sizeof k.product, "%s", cells[PRODUCT]);
    if (rival > 0)
        add_rival(c, &k, (int)rival);
    else
        append(c, &k);
}

/* Takes over the rows that make sense; whether the file has today's columns. */
static bool read_all(choices *c, csv *file, choice_source source)
{
    int place[COLUMNS];
    const char *cells[COLUMNS];
    bool all = true;
    if (!file)
        return true;
    for (int i = 0; i < COLUMNS; i++) {
        place[i] = csv_column(file, column_name(i));
        cells[i] = "";
        all = all && place[i] >= 0;
    }
    for (size_t row = 0; row < file->rows; row++) {
        for (int i = 0; i < COLUMNS; i++) {
            const char *cell = place[i] < 0 ? "" : file->cells[row * file->columns + (size_t)place[i]];
            cells[i] = *cell ? cell : cells[i];
        }
        read_row(c, cells, source);
    }
    csv_free(file);
    return all;
}

static void write_row(FILE *f, const kept_choice *k, const sb_matmul_choice *choice, int rival)
{
    double values[SHAPE_COLUMNS];
    OWNED char *name = csv_quoted(choice->name);
    size_t bytes = sizeof choice->algorithm;
    while (bytes > 1 && choice->algorithm[bytes - 1] == 0)
        bytes--;
    shape_values(&k->shape, values);
    fputs(*k->product ? k->product : "-", f);
    for (int i = 0; i < SHAPE_COLUMNS; i++)
        fprintf(f, ",%.0f", values[i]);
    fprintf(f, ",%lld,%s,%.6g,%.6g,%d,%d,", (long long)choice->library, *name ? name : "-", choice->ms,
            choice->first_ms, choice->tried, rival);
    for (size_t i = 0; i < bytes; i++)
        fprintf(f, "%02x", choice->algorithm[i]);
    fputc('\n', f);
}

static void write_choice(FILE *f, const kept_choice *k)
{
    write_row(f, k, &k->choice, 0);
    for (int i = 0; i < CHOICE_RIVALS && k->rivals[i].tried; i++)
        write_row(f, k, &k->rivals[i], i + 1);
}

static void write_header(FILE *f)
{
    for (int i = 0; i < COLUMNS; i++)
        fprintf(f, "%s%s", i ? "," : "", column_name(i));
    fputc('\n', f);
}

static void write_one(const char *path, const kept_choice *k)
{
    FILE *f = fopen(path, "a");
    if (!f)
        return;
    if (ftell(f) == 0)
        write_header(f);
    write_choice(f, k);
    fclose(f);
}

/* The choices from `first` on, with today's columns: lines are only ever added to such a file. */
static void convert(const choices *c, int first)
{
    OWNED char *anew = xasprintf("%s.new", c->path);
    FILE *f = fopen(anew, "w");
    if (f) {
        write_header(f);
        for (int i = first; i < c->count; i++)
            write_choice(f, &c->list[i]);
        if (file_close(f))
            (void)rename(anew, c->path);
        else
            (void)remove(anew);
    }
}

void choices_add(choices *c, const char *product, const kept_choice *choice)
{
    kept_choice k = *choice;
    snprintf(k.product, sizeof k.product, "%s", product);
    append(c, &k);
    if (c->path)
        write_one(c->path, &k);
}

choices *choices_open(const char *gpu, const char *path, bool retune)
{
    choices *c = xcalloc(1, sizeof *c);
    const char *shipped = choices_shipped(gpu);
    c->anew = retune;
    if (!retune && shipped)
        (void)read_all(c, csv_parse(shipped), CHOICE_SHIPPED);
    const int first = c->count;
    csv *file = path ? csv_read(path) : NULL;
    const bool today = !file || read_all(c, file, CHOICE_KEPT);
    c->path = path ? xstrdup(path) : NULL;
    if (!today)
        convert(c, first);
    if (retune)
        c->count = 0;
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
