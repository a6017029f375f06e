/* SPDX-License-Identifier: MIT */
/* The checks of a folder of results; see acceptance.h. */
#include "plots/report/acceptance.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/core/results.h"
#include "common/core/text.h"
#include "plots/report/db.h"

typedef struct verdict {
    const char *dir;
    sqlite3 *db;
    FILE *out;
    size_t complaints, rows, files;
} verdict;

/* A sentence for each row of the query, which is its first column; the first follows the folder's name. Takes sql, from
 * sqlite3_mprintf. */
static void complain(verdict *v, char *sql)
{
    OWNED_ROWS sqlite3_stmt *s = db_prepare(v->db, "report --check", sql);
    for (; sqlite3_step(s) == SQLITE_ROW; v->complaints++) {
        if (!v->complaints)
            fprintf(v->out, "%s is not ready to be sent:\n", v->dir);
        fprintf(v->out, "  %s\n", (const char *)sqlite3_column_text(s, 0));
    }
    sqlite3_free(sql);
}

static double number_of(const verdict *v, char *sql)
{
    OWNED char *text = db_text(v->db, "report --check", sql);
    const double x = text ? atof(text) : 0;
    sqlite3_free(sql);
    return x;
}

static void check_rows(verdict *v, const char *table)
{
    static const char *const faults[][2] = {
        {"failed, the first with: ' || substr(min(printf('%010d%s', id, coalesce(reason, ''))), 11) || '",
         "status = 'fail'"},
        {"were not verified (--check 0)", "status = 'ok' AND \"check\" = 0"},
        {"come from a tree with changes that were not committed", "status = 'ok' AND dirty = 1"},
        {"come from a tree of which git did not say that it is a commit''s, such as an archive",
         "status = 'ok' AND coalesce(dirty, -1) NOT IN (0, 1)"}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        complain(v, sqlite3_mprintf("SELECT '%q: ' || count(*) || ' rows %s' FROM \"%w\" WHERE %s HAVING count(*)",
                                    table, faults[i][0], table, faults[i][1]));
}

/* One sentence for a column that cannot be: the first row's. Boost clocks are above those of the data sheet by up to 2 %; plain products of
 * bench_roofline have the limit of their dtype, fp32 by 16-bit parts that of tensor cores. Early rows name a product of bf16 as the
 * ceiling of a float8 step, which may pass it. */
static void check_column(verdict *v, const char *table, const char *column, double most_of_ceiling)
{
    const bool share = text_ends(column, "ceiling_pct") || text_ends(column, "mfu_causal_pct");
    const char *dtype = strcmp(table, "bench_roofline") == 0 ? "dtype" : "'bf16'";
    if (text_ends(column, "tflops"))
        complain(
            v, sqlite3_mprintf(
                   "SELECT printf('%q: %q is %%.4g where the data sheet has %%.4g', x, peak) FROM (SELECT \"%w\" AS x, "
                   "peak_tflops(gpu, CASE variant WHEN 'gemm' THEN %s WHEN 'gemm_best' THEN %s WHEN 'float8' THEN "
                   "'fp8' ELSE 'bf16' END) AS "
                   "peak FROM \"%w\" WHERE status = 'ok' ORDER "
                   "BY id) WHERE x > 1.02 * peak LIMIT 1",
                   table, column, column, dtype, dtype, table));
    else if (share)
        complain(v, sqlite3_mprintf("SELECT printf('%q: %q is %%.4g', \"%w\") FROM \"%w\" WHERE status = 'ok' AND "
                                    "\"%w\" > %f %s ORDER BY id LIMIT 1",
                                    table, column, column, table, column,
                                    text_ends(column, "ceiling_pct") ? most_of_ceiling : 102.0,
                                    strcmp(column, "ceiling_pct") == 0 ? "AND precision NOT LIKE 'fp8%'" : ""));
    else if (strcmp(column, "step_ms") == 0 || strcmp(column, "fwd_ms") == 0 || strcmp(column, "time_us") == 0)
        complain(v, sqlite3_mprintf("SELECT printf('%q: %q is %%.4g', \"%w\") FROM \"%w\" WHERE status = 'ok' AND "
                                    "\"%w\" <= 0 ORDER BY id LIMIT 1",
                                    table, column, column, table, column));
}

/* The share of the ceiling that no kernel passes, in per cent. The best of many products, bursts included, is passed by none. Older
 * rows have squares at the power limit alone: attention that draws less power at a time runs at a higher clock, and
 * its share may be as large as the data sheet's. */
static double most_of_ceiling(const verdict *v)
{
    if (number_of(v,
                  sqlite3_mprintf("SELECT count(*) FROM bench_roofline WHERE variant = 'gemm_best' AND dtype = 'bf16' "
                                  "AND status = 'ok'")) > 0)
        return 100;
    return 2 +
           100 * fmax(1, number_of(v, sqlite3_mprintf("SELECT peak_tflops(gpu, 'bf16') / tflops FROM bench_roofline "
                                                      "WHERE variant = 'gemm' AND dtype = 'bf16' AND "
                                                      "status = 'ok' ORDER BY tflops DESC LIMIT 1")));
}

/* The driver's copy and a kernel's use the same memory: where one is far behind the other, the harness measured something else. */
static void check_copies(verdict *v)
{
    if (!number_of(v, sqlite3_mprintf("SELECT count(*) FROM bench_roofline WHERE variant = 'gemm_best'")))
        return; /* older rows have copies from CUDA graphs, which are slower from 1 GiB on */
    complain(v, sqlite3_mprintf(
                    "SELECT printf('bench_roofline: copy of %%d bytes has %%.4g GB/s, and copy_kernel %%.4g', "
                    "d.bytes, d.gb_s, k.gb_s) FROM bench_roofline d JOIN bench_roofline k ON k.variant = "
                    "'copy_kernel' AND k.bytes = d.bytes AND k.status = 'ok' WHERE d.variant = 'copy' AND d.status "
                    "= 'ok' AND d.device = 'cuda' AND d.gb_s < 0.8 * k.gb_s LIMIT 1"));
}

/* NULL: no report reads it. */
static const known_column *known_of(const char *table, const char *column)
{
    size_t n;
    const known_column *c = known_columns(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(c[i].table, table) == 0 && strcmp(c[i].name, column) == 0)
            return &c[i];
    return NULL;
}

/* What names figures and tells cases apart is a word or a number. */
static bool is_key(const char *table, const char *column)
{
    const known_column *c = known_of(table, column);
    return text_has_word("bench variant status machine device run_id campaign", column) ||
           (c && c->place == 'p' && text_starts(table, "bench_"));
}

/* What a bench never writes: tags, and what a shell or a figure could take for a command. Paths of this machine's owner, which
 * are in machine.csv, may have letters of any language. */
static bool is_strange(const char *text, bool key, bool any_language)
{
    static const char words[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:_+-/=()%";
    if ((key && text[strspn(text, words)]) || strpbrk(text, "`$\\{}"))
        return true;
    for (; *text; text++)
        if ((*text == '<' && (isalpha((unsigned char)text[1]) || strchr("/!?", text[1]))) ||
            (*text & 0x80 && !any_language))
            return true;
    return false;
}

static bool is_number(const char *table, const char *column)
{
    const known_column *c = known_of(table, column);
    return c && c->kind != 't';
}

/* A bench divides by a time that was measured: an infinite rate is none. */
static bool is_no_number(const char *cell)
{
    char *end;
    const double x = strtod(cell, &end);
    return *cell && strcmp(cell, "nan") != 0 && (*end || !isfinite(x));
}

/* The first strange cell of a column, counted from 1; 0: its name is strange; -1: none is. */
static long strange_row(const csv *file, const char *table, size_t column)
{
    const bool key = is_key(table, file->header[column]), number = is_number(table, file->header[column]);
    if (is_strange(file->header[column], true, false))
        return 0;
    for (size_t r = 0; r < file->rows; r++)
        if ((number && is_no_number(file->cells[r * file->columns + column])) ||
            is_strange(file->cells[r * file->columns + column], key, strcmp(table, "machine") == 0))
            return (long)r + 1;
    return -1;
}

/* One sentence for what is lost of a file and one for its first strange cell. */
static void check_texts(verdict *v, const char *name, const char *table, const csv *file)
{
    OWNED char *lost = csv_lost(file);
    if (lost || !file->rows)
        complain(v, sqlite3_mprintf("SELECT %Q || ': ' || %Q", name, lost ? lost : "no rows"));
    for (size_t c = 0; c < file->columns; c++) {
        const long row = strange_row(file, table, c);
        if (row > 0)
            complain(v, sqlite3_mprintf("SELECT '%q: row %d has something in column %d that no bench writes there'",
                                        name, (int)row, (int)c + 1));
        else if (!row)
            complain(v, sqlite3_mprintf("SELECT '%q: the name of column %d has a character that no bench writes'", name,
                                        (int)c + 1));
        if (row >= 0)
            return;
    }
}

static int is_csv(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return *entry->d_name != '.' && dot && strcmp(dot, ".csv") == 0;
}

static void check_folder(verdict *v, const char *dir, const char *inside)
{
    struct dirent **entries;
    OWNED char *folder = xasprintf("%s/%s", dir, inside);
    const int n = scandir(folder, &entries, is_csv, alphasort);
    for (int i = 0; i < n; i++) {
        OWNED char *name = xasprintf("%s%s", inside, entries[i]->d_name), *path = xasprintf("%s/%s", dir, name);
        OWNED_CSV csv *file = results_read(path);
        OWNED char *machine = results_machine(path);
        if (strncmp(entries[i]->d_name, "bench_", 6) == 0) /* a row is what is read of it */
            results_join(file, machine, (const char *const[]){"machine", "device", "campaign", NULL});
        *strrchr(entries[i]->d_name, '.') = '\0';
        if (file)
            check_texts(v, name, *inside ? "" : entries[i]->d_name, file);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

/* A sentence for each row of a pipeline whose file is not there. Of bench_run's logs and bench_memory's timelines a folder
 * keeps what a page shows. */
static void check_files(verdict *v, const char *dir)
{
    static const char *const named[][2] = {{"bench_pp", "timeline"}, {"bench_mesh", "actions"}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        OWNED char *sql =
            xasprintf("SELECT %s FROM %s WHERE %s <> '' ORDER BY id", named[i][1], named[i][0], named[i][1]);
        OWNED_ROWS sqlite3_stmt *s = db_prepare(v->db, "report --check", sql);
        while (sqlite3_step(s) == SQLITE_ROW) {
            const char *name = (const char *)sqlite3_column_text(s, 0);
            OWNED char *path = xasprintf("%s/pipeline/%s", dir, name);
            if (access(path, R_OK) != 0)
                complain(
                    v, sqlite3_mprintf("SELECT '%q: a row names pipeline/%q, which is not there'", named[i][0], name));
        }
    }
}

static void check_whole(verdict *v, const char *const *benches, size_t count)
{
    const double gpus =
        number_of(v, sqlite3_mprintf("SELECT max(CAST(value AS REAL)) FROM machine WHERE key = 'gpu_count'"));
    for (size_t i = 0; i < count; i++) {
        const char *colon = strchr(benches[i], ':');
        OWNED char *name = xasprintf("%.*s", colon ? (int)(colon - benches[i]) : (int)strlen(benches[i]), benches[i]);
        char *end = NULL;
        const double least = colon ? strtod(colon + 1, &end) : 0;
        if (colon && (end == colon + 1 || *end))
            die(EXIT_CODE_USAGE, "--check: '%s' is not BENCH or BENCH:GPUS, such as bench_fsdp:2", benches[i]);
        if (!colon || gpus >= least)
            complain(v, sqlite3_mprintf("SELECT '%q: no rows' WHERE %Q NOT IN (SELECT name FROM files)", name, name));
    }
}

size_t results_accept(const char *dir, const char *const *benches, size_t count, FILE *out)
{
    verdict v = {.dir = dir, .db = db_open(dir, NULL), .out = out};
    const double ceiling = most_of_ceiling(&v);
    check_copies(&v);
    size_t n;
    const known_column *c = known_columns(&n);
    db_run(v.db, "report --check", "CREATE TEMP TABLE ok(\"commit\", gpu_uuid)");
    check_whole(&v, benches, count);
    for (size_t k = 0; k < n; k++) {
        if (strncmp(c[k].table, "bench_", 6) != 0)
            continue;
        if (strcmp(c[k].name, "schema") == 0) { /* the first column of a table */
            const double rows = number_of(&v, sqlite3_mprintf("SELECT count(*) FROM \"%w\"", c[k].table));
            const bool ranks =
                number_of(&v, sqlite3_mprintf("SELECT count(*) FROM pragma_table_info(%Q) WHERE name = 'ranks'",
                                              c[k].table)) > 0;
            db_run(v.db, "report --check",
                   "INSERT INTO ok SELECT \"commit\", iif(device = 'cuda' AND coalesce(%s, 1) <= "
                   "1, gpu_uuid, NULL) FROM \"%w\" WHERE status = 'ok'",
                   ranks ? "ranks" : "1", c[k].table);
            v.rows += (size_t)rows;
            v.files += rows > 0;
            check_rows(&v, c[k].table);
        }
        check_column(&v, c[k].table, c[k].name, ceiling);
    }
    static const char *const folders[] = {"", "memory/", "pipeline/", "profile/", "run/", "timeline/"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        check_folder(&v, dir, folders[i]);
    check_files(&v, dir);
    if (!v.rows)
        complain(&v, sqlite3_mprintf("SELECT '%q holds no rows of a bench'", dir));
    complain(&v, sqlite3_mprintf("SELECT 'rows have several commits: ' || group_concat(c, ', ') FROM (SELECT "
                                 "DISTINCT \"commit\" AS c FROM ok) HAVING count(*) > 1"));
    complain(&v, sqlite3_mprintf("SELECT 'rows of one GPU name several: ' || group_concat(g, ', ') FROM (SELECT "
                                 "DISTINCT gpu_uuid AS g FROM ok WHERE gpu_uuid "
                                 "IS NOT NULL) HAVING count(*) > 1"));
    if (!v.complaints) {
        OWNED char *commit = db_text(v.db, "report --check", "SELECT \"commit\" FROM ok LIMIT 1");
        fprintf(out, "%s: %zu rows in %zu files, verified, of commit %s, within the limits of the device\n", dir,
                v.rows, v.files, commit ? commit : "unknown");
    }
    sqlite3_close(v.db);
    return v.complaints;
}
