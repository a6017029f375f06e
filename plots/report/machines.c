/* SPDX-License-Identifier: MIT */
/* Several folders side by side; see machines.h. */
#include "plots/report/machines.h"

#include <stdlib.h>
#include <string.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/core/results.h"
#include "plots/report/db.h"
#include "plots/report/engine.h"

/* GPUs that were kept from each other's memory are another machine; NULL where they were not. */
static char *without_peers(sqlite3 *db)
{
    return db_text(db, "report",
                   "SELECT iif(count(*) < (SELECT count(DISTINCT run_id) FROM machine), ', some runs', '') || "
                   "' with NCCL_P2P_DISABLE=1' FROM machine WHERE key = 'NCCL_P2P_DISABLE' AND value <> '0' HAVING "
                   "count(*)");
}

char *machine_title(sqlite3 *db, const char *device)
{
    OWNED char *gpus = db_text(
        db, "report",
        "SELECT c.value || ' x ' || n.value FROM machine n JOIN machine c USING (run_id) WHERE n.key = 'gpu_name' AND "
        "c.key = 'gpu_count' ORDER BY n.id DESC LIMIT 1");
    OWNED char *cpu = db_text(db, "report", "SELECT value FROM machine WHERE key = 'cpu' ORDER BY id DESC LIMIT 1");
    const bool on_gpu = gpus && strcmp(device, "cuda") == 0;
    OWNED char *disabled = on_gpu ? without_peers(db) : NULL;
    if (on_gpu)
        return xasprintf("%s%s", gpus, disabled ? disabled : "");
    return strcmp(device, "cuda") == 0 ? xstrdup("GPU: not known") : xasprintf("CPU: %s", cpu ? cpu : "not known");
}

/* For a folder without machine.csv, the rows say it. */
static bool any_row_of_a_gpu(const char *dir)
{
    sqlite3 *db = db_open(dir, "cuda");
    sqlite3_str *sql = sqlite3_str_new(db);
    size_t n;
    const known_column *c = known_columns(&n);
    for (size_t k = 0; k < n; k++)
        if (strncmp(c[k].table, "bench_", 6) == 0 && strcmp(c[k].name, "device") == 0)
            sqlite3_str_appendf(sql, "%sSELECT 1 FROM \"%w\" WHERE device = 'cuda' OR gpu_uuid <> ''",
                                sqlite3_str_length(sql) ? " UNION ALL " : "", c[k].table);
    char *query = sqlite3_str_finish(sql), *found = query ? db_text(db, "report", query) : NULL;
    const bool any = found;
    free(found);
    sqlite3_free(query);
    sqlite3_close(db);
    return any;
}

const char *machine_device(const char *dir)
{
    OWNED char *path = xasprintf("%s/machine.csv", dir);
    OWNED_CSV csv *machine = results_read(path);
    bool gpu = (!machine || !machine->rows) && any_row_of_a_gpu(dir);
    for (size_t i = 0; machine && i < machine->rows && !gpu; i++)
        gpu = csv_is(machine, i, "key", "gpu_name");
    return gpu ? "cuda" : "cpu";
}

/* What the sections up to the first screen put into their tables, for one folder. */
static sqlite3 *first_screen(const char *dir, const char *device, bool lint)
{
    sqlite3 *db = db_open(dir, device);
    document *doc = doc_create("");
    db_run(db, "report", "CREATE TABLE main_device AS SELECT '' AS device, 0 AS other WHERE 0");
    page_write(&(page){.db = db, .folder = NULL, .doc = doc, .lint = lint}, PAGE_FIRST_SCREEN);
    doc_free(doc);
    return db;
}

/* The rows of a query behind a first column `place`. */
static void copy(sqlite3 *to, const char *table, sqlite3 *from, const char *query, size_t place)
{
    OWNED_ROWS sqlite3_stmt *rows = db_prepare(from, table, query);
    const int n = sqlite3_column_count(rows);
    sqlite3_str *sql = sqlite3_str_new(to), *columns = sqlite3_str_new(to);
    sqlite3_str_appendf(sql, "INSERT INTO \"%w\" VALUES(?1", table);
    sqlite3_str_appendf(columns, "CREATE TABLE IF NOT EXISTS \"%w\"(place_", table);
    for (int c = 0; c < n; c++) {
        sqlite3_str_appendf(sql, ", ?%d", c + 2);
        sqlite3_str_appendf(columns, ", \"%w\"", sqlite3_column_name(rows, c));
    }
    sqlite3_str_appendall(sql, ")");
    sqlite3_str_appendall(columns, ")");
    OWNED_SQL char *create = sqlite3_str_finish(columns), *insert = sqlite3_str_finish(sql);
    db_run(to, table, "%s", create);
    OWNED_ROWS sqlite3_stmt *into = db_prepare(to, table, insert);
    while (sqlite3_step(rows) == SQLITE_ROW) {
        sqlite3_bind_int64(into, 1, (sqlite3_int64)place);
        for (int c = 0; c < n; c++)
            sqlite3_bind_value(into, c + 2, sqlite3_column_value(rows, c));
        sqlite3_step(into);
        sqlite3_reset(into);
    }
}

static void add_folder(sqlite3 *to, sqlite3 *from, const char *name, const char *title, size_t place)
{
    copy(to, "all_first_", from, "SELECT * FROM first", place);
    copy(to, "all_strongest", from, "SELECT * FROM strongest", place);
    copy(to, "all_refused", from, "SELECT work, why FROM judged WHERE why IS NOT NULL", place);
    copy(to, "all_planned", from, "SELECT * FROM planned", place);
    copy(to, "newest", from, "SELECT max(utc) AS utc, substr(max(utc), 1, 10) AS date, version FROM about", place);
    db_run(to, "report", "INSERT INTO folders VALUES(%lld, %Q, %Q)", (long long)place, name, title);
}

static sqlite3 *empty_database(void)
{
    sqlite3 *db;
    if (sqlite3_open(":memory:", &db) != SQLITE_OK)
        die(EXIT_CODE_FAILURE, "SQLite cannot open a database in memory: %s", sqlite3_errmsg(db));
    db_functions(db);
    db_run(db, "report", "CREATE TABLE folders(place, name, title)");
    return db;
}

static void make_views(sqlite3 *db)
{
    db_run(db, "report",
           "CREATE VIEW all_first AS SELECT place_ AS place, nth, what, coalesce(brief, '') AS value, share, peer "
           "FROM all_first_;" /* medians are on the page of each machine */
           "CREATE VIEW folder AS SELECT f.*, n.utc, n.date, n.version FROM folders f JOIN newest n ON n.place_ = "
           "f.place");
}

sqlite3 *machines_open(const machine_folder *folders, size_t n)
{
    sqlite3 *db = empty_database();
    for (size_t i = 0; i < n; i++) {
        const char *device = machine_device(folders[i].dir);
        sqlite3 *one = first_screen(folders[i].dir, device, false);
        OWNED char *title = machine_title(one, device);
        OWNED char *before = xasprintf("%s/", folders[i].name);
        db_warn_lost(one, before);
        add_folder(db, one, folders[i].name, title, i);
        sqlite3_close(one);
    }
    make_views(db);
    return db;
}

sqlite3 *machines_empty(void)
{
    sqlite3 *db = empty_database(), *one = first_screen(NULL, NULL, true);
    copy(db, "all_first_", one, "SELECT * FROM first WHERE 0", 0);
    copy(db, "all_strongest", one, "SELECT * FROM strongest WHERE 0", 0);
    copy(db, "all_refused", one, "SELECT work, why FROM judged WHERE 0", 0);
    copy(db, "all_planned", one, "SELECT * FROM planned WHERE 0", 0);
    copy(db, "newest", one, "SELECT '' AS utc, '' AS date, '' AS version WHERE 0", 0);
    sqlite3_close(one);
    make_views(db);
    return db;
}
