/* SPDX-License-Identifier: MIT */
/* report: a machine's CSV files as report.md and report.html, as the README's tables, and as a database to ask. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/report/db.h"
#include "common/report/engine.h"

static const char usage[] =
    "usage: report RESULTS_DIR                     writes RESULTS_DIR/report.md and report.html; rows of CPU ranks "
    "beside those\n"
    "              of GPUs get report-cpu.md and report-cpu.html\n"
    "       report --sql RESULTS_DIR QUERY           prints what a SELECT finds, as CSV. Each CSV file is a table of "
    "its name\n"
    "              (bench_flash, peer_flash, machine ...); docs/report.md has examples\n"
    "       report --db RESULTS_DIR FILE             writes these tables to FILE, for sqlite3 and others\n"
    "       report --lint                            prepares every statement of every section, without results\n";

static void check_folder(const char *dir)
{
    struct stat info;
    if (stat(dir, &info) != 0 || !S_ISDIR(info.st_mode))
        die(EXIT_CODE_USAGE, "'%s' is not a folder of results, such as results/h200-x1", dir);
}

/* ---- pages ---- */

static void write_page(const char *dir, const char *name, const document *doc, const doc_writer *writer)
{
    char *path = xasprintf("%s/%s", dir, name), *partial = xasprintf("%s.partial", path);
    FILE *out = fopen(partial, "w");
    if (!out)
        die(EXIT_CODE_FAILURE, "%s: %s", partial, strerror(errno));
    doc_write(doc, writer, &(doc_output){.file = out, .folder = dir});
    bool wrote = !ferror(out);
    if (fclose(out) != 0 || !wrote || rename(partial, path) != 0)
        die(EXIT_CODE_FAILURE, "%s: %s", path, strerror(errno));
    printf("wrote %s\n", path);
    free(partial);
    free(path);
}

/* "2 x NVIDIA H200", of the newest run. Caller frees. */
static char *title_of(sqlite3 *db, const char *device)
{
    char *gpus = db_text(db, "report",
                         "SELECT c.value || ' x ' || n.value FROM machine n JOIN machine c USING (run_id) WHERE n.key = 'gpu_name' AND "
                         "c.key = 'gpu_count' ORDER BY n.id DESC LIMIT 1");
    char *cpu = db_text(db, "report", "SELECT value FROM machine WHERE key = 'cpu' ORDER BY id DESC LIMIT 1");
    const bool on_gpu = gpus && strcmp(device, "cuda") == 0;
    char *title = on_gpu ? xstrdup(gpus) : xasprintf("CPU: %s", cpu ? cpu : "not known");
    free(cpu);
    free(gpus);
    return title;
}

static void write_pages(const char *dir, const char *device, const char *name, bool rows_needed)
{
    sqlite3 *db = db_open(dir, device);
    db_guard(db, false);
    char *title = title_of(db, device);
    document *doc = doc_create(title);
    free(title);
    db_run(db, "report", "CREATE TABLE main_device(device, other)");
    char *sql = sqlite3_mprintf("INSERT INTO main_device VALUES(%Q, %d)", device, rows_needed);
    db_run(db, "report", sql);
    sqlite3_free(sql);
    page_write(&(page){.db = db, .folder = dir, .doc = doc});
    char *md = xasprintf("%s.md", name), *html = xasprintf("%s.html", name);
    write_page(dir, md, doc, &markdown_writer);
    write_page(dir, html, doc, &html_writer);
    free(md);
    free(html);
    doc_free(doc);
    sqlite3_close(db);
}

static int write_report(const char *dir)
{
    check_folder(dir);
    sqlite3 *db = db_open(dir, NULL);
    char *gpu = db_text(db, "report", "SELECT 1 FROM machine WHERE key = 'gpu_name'");
    char *ranks = db_text(
        db, "report",
        "SELECT 1 FROM bench_allreduce WHERE device = 'cpu' UNION SELECT 1 FROM bench_ddp_naive WHERE device = 'cpu' "
        "UNION SELECT 1 FROM bench_fsdp WHERE device = 'cpu'");
    sqlite3_close(db);
    write_pages(dir, gpu ? "cuda" : "cpu", "report", false);
    if (gpu && ranks)
        write_pages(dir, "cpu", "report-cpu", true);
    free(ranks);
    free(gpu);
    return EXIT_CODE_OK;
}

static int lint(void)
{
    sqlite3 *db = db_open(NULL, NULL);
    db_guard(db, false);
    document *doc = doc_create("");
    db_run(db, "report", "CREATE TABLE main_device(device, other)");
    page_write(&(page){.db = db, .folder = NULL, .doc = doc, .lint = true});
    doc_free(doc);
    sqlite3_close(db);
    return EXIT_CODE_OK;
}

/* ---- questions ---- */

static void print_cell(const char *text, bool last)
{
    const size_t length = csv_quote(text ? text : "", NULL, 0) + 1;
    char *quoted = xmalloc(length);
    csv_quote(text ? text : "", quoted, length);
    printf("%s%c", quoted, last ? '\n' : ',');
    free(quoted);
}

static int answer(const char *dir, const char *query)
{
    check_folder(dir);
    sqlite3 *db = db_open(dir, NULL);
    db_guard(db, true);
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(db, query, -1, &s, NULL) != SQLITE_OK || !s)
        die(EXIT_CODE_USAGE, "%s", s ? sqlite3_errmsg(db) : "there is no query");
    const int n = sqlite3_column_count(s);
    for (int c = 0; c < n; c++)
        print_cell(sqlite3_column_name(s, c), c == n - 1);
    int rc;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW)
        for (int c = 0; c < n; c++)
            print_cell((const char *)sqlite3_column_text(s, c), c == n - 1);
    if (rc != SQLITE_DONE)
        die(EXIT_CODE_USAGE, "%s", sqlite3_errmsg(db));
    sqlite3_finalize(s);
    sqlite3_close(db);
    return EXIT_CODE_OK;
}

static int keep(const char *dir, const char *path)
{
    check_folder(dir);
    sqlite3 *from = db_open(dir, NULL), *to;
    if (sqlite3_open_v2(path, &to, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) != SQLITE_OK)
        die(EXIT_CODE_FAILURE, "%s: %s", path, sqlite3_errmsg(to));
    sqlite3_backup *backup = sqlite3_backup_init(to, "main", from, "main");
    if (!backup || sqlite3_backup_step(backup, -1) != SQLITE_DONE || sqlite3_backup_finish(backup) != SQLITE_OK)
        die(EXIT_CODE_FAILURE, "%s: %s", path, sqlite3_errmsg(to));
    sqlite3_close(to);
    sqlite3_close(from);
    return EXIT_CODE_OK;
}

int main(int argc, char **argv)
{
    program_name_set(argv[0]);
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return EXIT_CODE_OK;
    }
    if (argc == 2 && strcmp(argv[1], "--lint") == 0)
        return lint();
    if (argc == 4 && strcmp(argv[1], "--sql") == 0)
        return answer(argv[2], argv[3]);
    if (argc == 4 && strcmp(argv[1], "--db") == 0)
        return keep(argv[2], argv[3]);
    if (argc == 2 && argv[1][0] != '-')
        return write_report(argv[1]);
    fputs(usage, stderr);
    return EXIT_CODE_USAGE;
}
