/* SPDX-License-Identifier: MIT */
/* report: a machine's CSV files as report.md and report.html, as the README's tables, and as a database to ask. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/core/version.h"
#include "common/compare/checkout.h"
#include "plots/report/acceptance.h"
#include "plots/report/db.h"
#include "plots/report/embedded.h"
#include "plots/report/engine.h"
#include "plots/report/machines.h"

static const char usage[] =
    "%s: What do a machine's results say?\n"
    "\n"
    "usage: %s RESULTS_DIR\n"
    "       %s OPTION ...\n"
    "\n"
    "Writes RESULTS_DIR/report.md and report.html. Rows of CPU ranks beside those of GPUs get report-cpu.md and\n"
    "report-cpu.html. Or, by an option:\n"
    "\n"
    "  --all OUT_DIR RESULTS_DIR ...        write OUT_DIR/report-all.md and report-all.html, several folders side by "
    "side;\n"
    "                                       a folder may be COMMIT:PATH, as git has it at a commit\n"
    "  --readme RESULTS_DIR ... README.md   rewrite the two tables between their markers\n"
    "  --check RESULTS_DIR [BENCH ...]      say whether the folder can be sent: whole (a file for each BENCH; BENCH:2 "
    "needs\n"
    "                                       two GPUs), verified, of one clean commit, within its GPU's limits; exit "
    "code 4\n"
    "                                       if not, with a sentence for each reason\n"
    "  --sql RESULTS_DIR QUERY              print what a SELECT finds, as CSV; each CSV file is a table of its name\n"
    "                                       (bench_flash, peer_flash, machine ...); docs/report.md has examples\n"
    "  --db RESULTS_DIR FILE                write these tables to FILE, for sqlite3 and others\n"
    "  --figures RESULTS_DIR OUT_DIR NAME ...\n"
    "                                       write the data and the variables of figures, for plots/draw.sh\n"
    "  --lint                               prepare every statement of every section, without results\n"
    "  --version, --help\n"
    "\n"
    "Exit codes: 0, 1 failure, 2 bad input, 4 the folder of --check cannot be sent.\n";

/* Installed, the program is called stepbench-report. */
static void print_usage(FILE *out)
{
    fprintf(out, usage, program_name(), program_name(), program_name());
}

static void check_folder(const char *dir)
{
    struct stat info;
    if (stat(dir, &info) != 0 || !S_ISDIR(info.st_mode))
        die(EXIT_CODE_USAGE, "'%s' is not a folder of results, such as results/h200-x1", dir);
}

/* ---- pages ---- */

static void write_page(const char *dir, const char *name, const document *doc, const doc_writer *writer)
{
    OWNED char *path = xasprintf("%s/%s", dir, name), *partial = xasprintf("%s.partial", path);
    FILE *out = fopen(partial, "w");
    if (!out)
        die(EXIT_CODE_FAILURE, "%s: %s", partial, strerror(errno));
    doc_write(doc, writer, &(doc_output){.file = out, .folder = dir});
    if (!file_close(out) || rename(partial, path) != 0)
        die(EXIT_CODE_FAILURE, "%s: %s", path, strerror(errno));
    printf("wrote %s\n", path);
}

/* Closes db. */
static void write_pages(sqlite3 *db, const char *dir, const char *device, const char *name, bool beside_gpus)
{
    db_guard(db, false);
    OWNED char *title = machine_title(db, device);
    document *doc = doc_create(title);
    db_run(db, "report", "CREATE TABLE main_device(device, other)");
    db_run(db, "report", "INSERT INTO main_device VALUES(%Q, %d)", device, beside_gpus);
    page_write(&(page){.db = db, .folder = beside_gpus && strcmp(device, "cpu") == 0 ? NULL : dir, .doc = doc},
               PAGE_ALL);
    OWNED char *md = xasprintf("%s.md", name), *html = xasprintf("%s.html", name);
    write_page(dir, md, doc, &markdown_writer);
    write_page(dir, html, doc, &html_writer);
    OWNED char *said = db_text(db, "report", "SELECT said FROM last_line");
    if (said)
        printf("%s: %s; %s/%s\n", title, said, dir, html);
    doc_free(doc);
    sqlite3_close(db);
}

/* Rows of ranks on the CPU lie beside those of GPUs for lack of GPUs, and have a page of their own. */
static int write_report(const char *dir)
{
    check_folder(dir);
    const char *device = machine_device(dir);
    sqlite3 *cpu = strcmp(device, "cuda") == 0 ? db_open(dir, "cpu") : NULL;
    OWNED char *ranks =
        cpu ? db_text(cpu, "report",
                      "SELECT 1 FROM bench_allreduce UNION SELECT 1 FROM bench_ddp_naive UNION SELECT 1 FROM "
                      "bench_fsdp LIMIT 1")
            : NULL;
    sqlite3 *db = db_open(dir, device);
    db_warn_lost(db, "");
    if (ranks)
        write_pages(cpu, dir, "cpu", "report-cpu", true);
    else
        sqlite3_close(cpu);
    write_pages(db, dir, device, "report", ranks); /* last: ./run_all.sh ends with its last line */
    return EXIT_CODE_OK;
}

/* The data of figures: plots/figures/<name>.sql of the rows that stand for the machine. */
static int write_figures(const char *dir, const char *into, char *const *names, size_t n)
{
    check_folder(dir);
    check_folder(into);
    sqlite3 *db = db_open(dir, machine_device(dir));
    db_guard(db, false);
    document *doc = doc_create("");
    db_run(db, "report", "CREATE TABLE main_device AS SELECT '' AS device, 0 AS other WHERE 0");
    page_write(&(page){.db = db, .folder = NULL, .doc = doc}, PAGE_PEERS);
    for (size_t i = 0; i < n; i++) {
        OWNED char *file = xasprintf("figures/%s.sql", names[i]);
        if (embedded_text(file))
            page_use(&(page){.db = db, .folder = NULL, .doc = doc, .figure = names[i], .drawings = into}, file);
    }
    doc_free(doc);
    sqlite3_close(db);
    return EXIT_CODE_OK;
}

static int lint(void)
{
    sqlite3 *db = db_open(NULL, NULL);
    db_guard(db, false);
    document *doc = doc_create("");
    db_run(db, "report", "CREATE TABLE main_device(device, other)");
    page_write(&(page){.db = db, .folder = NULL, .doc = doc, .lint = true}, PAGE_ALL);
    for (const embedded *e = embedded_files; e->name; e++)
        if (strncmp(e->name, "figures/", 8) == 0)
            page_use(&(page){.db = db, .folder = NULL, .doc = doc, .lint = true}, e->name);
    sqlite3_close(db);
    sqlite3 *all = machines_empty();
    static const char *const files[] = {"across.sql", "readme_table.sql", "readme_peers.sql"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        page_use(&(page){.db = all, .folder = NULL, .doc = doc, .lint = true}, files[i]);
    sqlite3_close(all);
    doc_free(doc);
    return EXIT_CODE_OK;
}

/* ---- several folders ---- */

/* "results/h200-x1/" is h200-x1; "HEAD~1:results/h200-x1" is HEAD~1:h200-x1. Caller frees. */
static char *short_name(const char *folder)
{
    const char *colon = strchr(folder, ':');
    char *path = xstrdup(colon ? colon + 1 : folder), *end = path + strlen(path);
    while (end > path + 1 && end[-1] == '/')
        *--end = '\0';
    const char *slash = strrchr(path, '/');
    char *name = xasprintf("%.*s%s", colon ? (int)(colon + 1 - folder) : 0, folder, slash ? slash + 1 : path);
    free(path);
    return name;
}

/* Names are titles of columns: where two folders have the same short one, they keep their paths. */
static machine_folder *open_folders(char *const *dirs, size_t n)
{
    machine_folder *folders = xcalloc(n, sizeof *folders);
    for (size_t i = 0; i < n; i++) {
        char *name = short_name(dirs[i]);
        for (size_t k = 0; k < n; k++) {
            OWNED char *other = short_name(dirs[k]);
            if (k < i && strcmp(dirs[i], dirs[k]) == 0)
                die(EXIT_CODE_USAGE, "'%s' is given twice", dirs[i]);
            if (k != i && strcmp(name, other) == 0) {
                free(name);
                name = xstrdup(dirs[i]);
            }
        }
        folders[i] = (machine_folder){name, checkout_path(dirs[i])};
        check_folder(folders[i].dir);
    }
    return folders;
}

static void close_folders(machine_folder *folders, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free((char *)folders[i].name);
        free((char *)folders[i].dir);
    }
    free(folders);
}

static int write_all(const char *out, char *const *dirs, size_t n)
{
    check_folder(out);
    machine_folder *folders = open_folders(dirs, n);
    sqlite3 *db = machines_open(folders, n);
    document *doc = doc_create("Machines side by side");
    page_use(&(page){.db = db, .folder = NULL, .doc = doc}, "across.sql");
    write_page(out, "report-all.md", doc, &markdown_writer);
    write_page(out, "report-all.html", doc, &html_writer);
    doc_free(doc);
    sqlite3_close(db);
    close_folders(folders, n);
    return EXIT_CODE_OK;
}

static int update_readme(char *const *dirs, size_t n, const char *readme)
{
    machine_folder *folders = open_folders(dirs, n);
    const int code = readme_update(folders, n, readme);
    close_folders(folders, n);
    return code;
}

/* ---- questions ---- */

static void print_cell(const char *text, bool last)
{
    OWNED char *quoted = csv_quoted(text ? text : "");
    printf("%s%c", quoted, last ? '\n' : ',');
}

static int answer(const char *dir, const char *query)
{
    check_folder(dir);
    sqlite3 *db = db_open(dir, NULL);
    db_guard(db, true);
    sqlite3_stmt *s;
    const char *rest;
    if (sqlite3_prepare_v2(db, query, -1, &s, &rest) != SQLITE_OK)
        die(EXIT_CODE_USAGE, "%s", sqlite3_errmsg(db));
    if (!s)
        die(EXIT_CODE_USAGE, "there is no query");
    if (rest[strspn(rest, " \t\r\n;")])
        die(EXIT_CODE_USAGE, "there is more than one query: '%s' follows the first", rest + strspn(rest, " \t\r\n;"));
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
    const int code = backup ? sqlite3_backup_step(backup, -1) : sqlite3_errcode(to);
    if (code != SQLITE_DONE || sqlite3_backup_finish(backup) != SQLITE_OK)
        die(EXIT_CODE_FAILURE, "%s: %s", path, code != SQLITE_DONE ? sqlite3_errstr(code) : sqlite3_errmsg(to));
    sqlite3_close(to);
    sqlite3_close(from);
    return EXIT_CODE_OK;
}

int main(int argc, char **argv)
{
    program_name_set(argv[0]);
    /* One thread asks, nobody asks how much memory SQLite has, and statements are large. */
    sqlite3_config(SQLITE_CONFIG_SINGLETHREAD);
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 1200, 2000);
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_usage(stdout);
        return EXIT_CODE_OK;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("%s %s\n", program_name(), STEPBENCH_VERSION);
        return EXIT_CODE_OK;
    }
    if (argc == 2 && strcmp(argv[1], "--lint") == 0)
        return lint();
    if (argc >= 4 && strcmp(argv[1], "--figures") == 0)
        return write_figures(argv[2], argv[3], argv + 4, (size_t)argc - 4);
    if (argc == 4 && strcmp(argv[1], "--sql") == 0)
        return answer(argv[2], argv[3]);
    if (argc == 4 && strcmp(argv[1], "--db") == 0)
        return keep(argv[2], argv[3]);
    if (argc >= 3 && strcmp(argv[1], "--check") == 0) {
        check_folder(argv[2]);
        return results_accept(argv[2], (const char *const *)argv + 3, (size_t)argc - 3, stdout) ? EXIT_CODE_GATE
                                                                                                : EXIT_CODE_OK;
    }
    if (argc >= 4 && strcmp(argv[1], "--all") == 0)
        return write_all(argv[2], argv + 3, (size_t)argc - 3);
    if (argc >= 4 && strcmp(argv[1], "--readme") == 0)
        return update_readme(argv + 2, (size_t)argc - 3, argv[argc - 1]);
    if (argc == 2 && argv[1][0] != '-')
        return write_report(argv[1]);
    print_usage(stderr);
    return EXIT_CODE_USAGE;
}
