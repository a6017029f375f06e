/* SPDX-License-Identifier: MIT */
/* The checks of a folder of results; see acceptance.h. */
#include "common/report/acceptance.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/formulas/model.h"
#include "common/report/section.h"

enum { NAMES = 16 };

/* The distinct values of something, the first few of them. */
typedef struct names {
    size_t n;
    char text[NAMES][64];
} names;

static void names_add(names *s, const char *text)
{
    size_t i = 0;
    while (i < s->n && i < NAMES && strcmp(s->text[i], text) != 0)
        i++;
    if (i == s->n && i < NAMES)
        snprintf(s->text[s->n++], sizeof s->text[0], "%s", text);
}

typedef struct verdict {
    FILE *out;
    size_t complaints, rows, files;
    names commits, gpus;
    double headroom;
} verdict;

static void complain(verdict *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void complain(verdict *v, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(v->out, format, arguments);
    va_end(arguments);
    fputc('\n', v->out);
    v->complaints++;
}

static bool is_measured(const table *t, size_t row)
{
    return strcmp(table_text(t, row, "status"), "ok") == 0;
}

/* Rows of several ranks are of several GPUs. */
static bool is_of_one_gpu(const table *t, size_t row)
{
    const double ranks = table_real(t, row, "ranks");
    return strcmp(table_text(t, row, "device"), "cuda") == 0 && !(ranks > 1);
}

static void check_rows(verdict *v, const table *t, const char *name)
{
    size_t failed = 0, unverified = 0, changed = 0, unknown = 0, first = NO_ROW;
    for (size_t r = 0; r < t->n; r++) {
        const bool bad = strcmp(table_text(t, r, "status"), "fail") == 0;
        first = bad && !failed ? r : first;
        failed += bad;
        if (!is_measured(t, r))
            continue;
        unverified += strcmp(table_text(t, r, "check"), "0") == 0;
        const char *dirty = table_text(t, r, "dirty");
        changed += strcmp(dirty, "1") == 0;
        unknown += strcmp(dirty, "1") != 0 && strcmp(dirty, "0") != 0;
        names_add(&v->commits, table_text(t, r, "commit"));
        if (is_of_one_gpu(t, r) && *table_text(t, r, "gpu_uuid"))
            names_add(&v->gpus, table_text(t, r, "gpu_uuid"));
    }
    if (failed)
        complain(v, "%s: %zu rows failed, the first with: %s", name, failed, table_text(t, first, "reason"));
    if (unverified)
        complain(v, "%s: %zu rows were not verified (--check 0)", name, unverified);
    if (changed)
        complain(v, "%s: %zu rows come from a tree with changes that were not committed", name, changed);
    if (unknown)
        complain(v, "%s: %zu rows come from a tree of which git did not say that it is a commit's, such as an archive",
                 name, unknown);
}

static bool ends(const char *text, const char *with)
{
    const size_t n = strlen(text), m = strlen(with);
    return n >= m && strcmp(text + n - m, with) == 0;
}

/* fp32 by 16-bit parts has the limit of tensor cores; plain products of bench_roofline have their own. */
static double peak_of(const table *t, size_t row)
{
    const bool plain = strcmp(table_text(t, row, "variant"), "gemm") == 0;
    return peak_tflops(table_text(t, row, "gpu"), plain ? table_text(t, row, "dtype") : "bf16");
}

/* The data sheet's rate of 16-bit products over the best measured one, 1 where either is unknown. Products run at the power
 * limit; attention that draws less power at a time runs at a higher clock, and its share of their rate may pass 100 %. */
static double headroom_of(const char *dir)
{
    table *t = open_result(dir, "bench_roofline.csv");
    if (!t)
        return 1;
    table *gemm = table_where(t, "variant", "gemm", "dtype", "bf16", "status", "ok", NULL);
    const size_t best = largest(gemm, "tflops");
    const double headroom = best == NO_ROW ? 1 : fmax(1, peak_of(gemm, best) / table_real(gemm, best, "tflops"));
    table_free(gemm);
    table_free(t);
    return headroom;
}

/* One sentence for each column that cannot be: the first row's. */
static void check_columns(verdict *v, const table *t, const char *name)
{
    enum { SLACK = 2 /* %: boost clocks above those of the data sheet */ };
    for (size_t c = 0; c < t->file->columns; c++) {
        const char *column = t->file->header[c];
        const bool rate = ends(column, "tflops"), of_measured = ends(column, "ceiling_pct");
        const bool share = of_measured || ends(column, "mfu_causal_pct");
        const double whole = of_measured ? 100 * v->headroom : 100;
        const bool time =
            strcmp(column, "step_ms") == 0 || strcmp(column, "fwd_ms") == 0 || strcmp(column, "time_us") == 0;
        for (size_t r = 0; (rate || share || time) && r < t->n; r++) {
            const double x = table_real(t, r, column), peak = rate ? peak_of(t, r) : NAN;
            if (!is_measured(t, r) || isnan(x))
                continue;
            if (rate && x > peak * (1 + SLACK / 100.0))
                complain(v, "%s: %s is %.4g where the data sheet has %.4g", name, column, x, peak);
            else if (share && x > whole + SLACK)
                complain(v, "%s: %s is %.4g", name, column, x);
            else if (time && !(x > 0))
                complain(v, "%s: %s is %.4g", name, column, x);
            else
                continue;
            break;
        }
    }
}

/* What a text of a bench never has: tags, and what a shell or a figure could take for a command. Paths of this machine's owner,
 * which are in machine.csv, may have letters of any language. */
static bool is_strange(const char *text, const char *name)
{
    for (; *text; text++)
        if (strchr("`$\\{}", *text) || (*text == '<' && (isalpha((unsigned char)text[1]) || strchr("/!?", text[1]))) ||
            (*text & 0x80 && strcmp(name, "machine.csv") != 0))
            return true;
    return false;
}

static bool is_drawable(const char *text)
{
    char *copy = xstrdup(text);
    text_make_drawable(copy);
    const bool same = strcmp(copy, text) == 0;
    free(copy);
    return same;
}

/* What names figures and tells cases apart is a word or a number. */
static bool is_key(const csv *file, size_t column)
{
    static const char *const names[] = {"bench", "variant", "status", "machine", "device", "run_id", "campaign"};
    int first, end;
    table_params(file, &first, &end);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(file->header[column], names[i]) == 0)
            return true;
    return csv_column(file, "reason") >= 0 && (int)column >= first && (int)column < end;
}

/* One sentence for a file: the first strange cell's. */
static void check_texts(void *verdict_of, const char *name, const csv *file)
{
    verdict *v = verdict_of;
    char *lost = csv_lost(file);
    if (lost || !file->rows)
        complain(v, "%s: %s", name, lost ? lost : "no rows");
    free(lost);
    for (size_t c = 0; c < file->columns; c++) {
        const bool key = is_key(file, c);
        bool strange = !is_drawable(file->header[c]);
        size_t r = 0;
        while (!strange && r < file->rows) {
            const char *text = file->cells[r++ * file->columns + c];
            strange = is_strange(text, name) || (key && !is_drawable(text));
        }
        if (strange && r)
            complain(v, "%s: row %zu has a character in column %zu that no bench writes there", name, r, c + 1);
        else if (strange)
            complain(v, "%s: the name of column %zu has a character that no bench writes", name, c + 1);
        if (strange)
            return;
    }
}

static void check_file(verdict *v, const char *dir, const char *name)
{
    char *path = xasprintf("%s/%s.csv", dir, name);
    table *t = open_rows(path);
    if (t) {
        v->files++;
        v->rows += t->n;
        check_rows(v, t, name);
        check_columns(v, t, name);
        table_free(t);
    }
    free(path);
}

static double gpus_of(const char *dir)
{
    csv *machine = open_peer(dir, "machine.csv");
    double most = 0;
    for (size_t r = 0; machine && r < machine->rows; r++)
        if (cell_is(machine, r, "key", "gpu_count"))
            most = fmax(most, csv_real(machine, r, "value"));
    csv_free(machine);
    return most;
}

static void check_whole(verdict *v, const char *dir, const char *const *benches, size_t count)
{
    const double gpus = gpus_of(dir);
    for (size_t i = 0; i < count; i++) {
        const char *colon = strchr(benches[i], ':');
        const int length = colon ? (int)(colon - benches[i]) : (int)strlen(benches[i]);
        char *file = xasprintf("%.*s.csv", length, benches[i]);
        table *t = open_result(dir, file);
        if (!t && (!colon || gpus >= atof(colon + 1)))
            complain(v, "%.*s: no rows", length, benches[i]);
        if (t)
            table_free(t);
        free(file);
    }
}

static int is_bench(const struct dirent *entry)
{
    return strncmp(entry->d_name, "bench_", 6) == 0 && ends(entry->d_name, ".csv");
}

static void list(verdict *v, const char *what, const names *s)
{
    char text[NAMES * 66] = "";
    for (size_t i = 0; i < s->n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? ", " : "", s->text[i]);
    complain(v, "%s: %s%s", what, text, s->n == NAMES ? ", ..." : "");
}

size_t results_accept(const char *dir, const char *const *benches, size_t count, FILE *out)
{
    verdict v = {.out = out, .headroom = headroom_of(dir)};
    struct dirent **entries;
    const int found = scandir(dir, &entries, is_bench, alphasort);
    check_whole(&v, dir, benches, count);
    for (int i = 0; i < found; i++) {
        *strrchr(entries[i]->d_name, '.') = '\0';
        check_file(&v, dir, entries[i]->d_name);
        free(entries[i]);
    }
    if (found >= 0)
        free(entries);
    results_each_file(dir, check_texts, &v);
    if (!v.rows)
        complain(&v, "%s holds no rows of a bench", dir);
    if (v.commits.n > 1)
        list(&v, "rows are of several commits", &v.commits);
    if (v.gpus.n > 1)
        list(&v, "rows of one GPU are of several", &v.gpus);
    if (!v.complaints)
        fprintf(out, "%s: %zu rows in %zu files, verified, of commit %s, within the limits of the GPU\n", dir, v.rows,
                v.files, v.commits.n ? v.commits.text[0] : "unknown");
    return v.complaints;
}
