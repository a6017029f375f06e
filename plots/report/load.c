/* SPDX-License-Identifier: MIT */
/* CSV files as tables; see db.h. Beside the file's columns a row has: id (its place), options (its parameters, JSON; dimensions that
 * a model's size has by itself are 0), custom (1: it has others), and run_of, which is alike in rows of one run on one GPU: those
 * alone may stand in a ratio. */
#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/core/results.h"
#include "common/core/text.h"
#include "plots/report/db.h"

void db_run(sqlite3 *db, const char *where, const char *sql, ...)
{
    va_list values;
    va_start(values, sql);
    OWNED_SQL char *text = sqlite3_vmprintf(sql, values);
    va_end(values);
    if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK)
        die(EXIT_CODE_FAILURE, "%s: %s", where, sqlite3_errmsg(db));
}

sqlite3_stmt *db_prepare(sqlite3 *db, const char *where, const char *sql)
{
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK)
        die(EXIT_CODE_FAILURE, "%s: %s", where, sqlite3_errmsg(db));
    return s;
}

char *db_text(sqlite3 *db, const char *where, const char *sql)
{
    OWNED_ROWS sqlite3_stmt *s = db_prepare(db, where, sql);
    const char *text = sqlite3_step(s) == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    char *copy = text ? xstrdup(text) : NULL;
    return copy;
}

static size_t table_end(const known_column *c, size_t n, size_t first)
{
    size_t end = first;
    while (end < n && strcmp(c[end].table, c[first].table) == 0)
        end++;
    return end;
}

/* ---- a file ---- */

/* Numbers as such; nothing, nan, and what is no finite number as NULL, since to SQL any text is larger than all numbers. In texts
 * control characters, which mark up text here, become blanks. */
static void bind(sqlite3_stmt *s, int at, char *cell, char kind)
{
    char *end;
    const double real = strtod(cell, &end);
    if (!*cell || (kind != 't' && (*end || !isfinite(real)))) {
        sqlite3_bind_null(s, at);
    } else if (kind != 't') {
        if (kind == 'i' && !cell[strspn(cell, "-0123456789")])
            sqlite3_bind_int64(s, at, strtoll(cell, NULL, 10));
        else
            sqlite3_bind_double(s, at, real);
    } else {
        for (char *c = cell; *c; c++)
            *c = (unsigned char)*c < ' ' ? ' ' : *c;
        sqlite3_bind_text(s, at, cell, -1, SQLITE_TRANSIENT);
    }
}

/* A file of the time before an option has the option's default, unless that is a sweep. */
static void bind_default(sqlite3_stmt *s, int at, const known_column *c)
{
    OWNED char *plain = xstrdup(c->place == 'p' && !strpbrk(c->plain, ",:") ? c->plain : "");
    bind(s, at, plain, c->kind);
}

static const char *affinity(char kind)
{
    return kind == 'i' ? "INTEGER" : kind == 'r' ? "REAL" : "TEXT";
}

static bool has_options(const char *table)
{
    return text_starts(table, "bench_") || text_starts(table, "peer_");
}

static void run_str(sqlite3 *db, sqlite3_str *sql)
{
    OWNED_SQL char *text = sqlite3_str_finish(sql);
    db_run(db, "loading", "%s", text);
}

/* CREATE TABLE of the columns first ... end - 1. */
static void create(sqlite3 *db, const char *name, const known_column *c, size_t first, size_t end)
{
    sqlite3_str *sql = sqlite3_str_new(db);
    sqlite3_str_appendf(sql, "CREATE TABLE \"%w\"(id INTEGER PRIMARY KEY", name);
    if (has_options(c[first].table))
        sqlite3_str_appendall(sql, ", options TEXT, custom INTEGER, run_of TEXT");
    if (strchr(c[first].path, '*'))
        sqlite3_str_appendall(sql, ", file TEXT");
    for (size_t k = first; k < end; k++)
        sqlite3_str_appendf(sql, ", \"%w\" %s", c[k].name, affinity(c[k].kind));
    sqlite3_str_appendall(sql, ")");
    run_str(db, sql);
}

/* The file's rows into the table `into`, in their order. */
static void insert(sqlite3 *db, const char *into, csv *file, const char *path, const known_column *c, size_t first,
                   size_t end)
{
    sqlite3_str *sql = sqlite3_str_new(db);
    const bool many = strchr(c[first].path, '*');
    sqlite3_str_appendf(sql, "INSERT INTO \"%w\"(%s", into, many ? "file" : "id");
    for (size_t k = first; k < end; k++)
        sqlite3_str_appendf(sql, ", \"%w\"", c[k].name);
    sqlite3_str_appendf(sql, ") VALUES(?1");
    for (size_t k = first; k < end; k++)
        sqlite3_str_appendf(sql, ", ?%d", (int)(k - first) + 2);
    sqlite3_str_appendall(sql, ")");
    OWNED_SQL char *text = sqlite3_str_finish(sql);
    OWNED_ROWS sqlite3_stmt *s = db_prepare(db, path, text);
    OWNED int *columns = xmalloc((end - first) * sizeof *columns);
    for (size_t k = first; k < end; k++)
        columns[k - first] = csv_column(file, c[k].name);
    for (size_t r = 0; r < file->rows; r++) {
        sqlite3_bind_null(s, 1);
        if (many)
            sqlite3_bind_text(s, 1, path, -1, SQLITE_TRANSIENT);
        for (size_t k = 0; k < end - first; k++)
            if (columns[k] < 0)
                bind_default(s, (int)k + 2, &c[first + k]);
            else
                bind(s, (int)k + 2, file->cells[r * file->columns + (size_t)columns[k]], c[first + k].kind);
        if (sqlite3_step(s) != SQLITE_DONE)
            die(EXIT_CODE_FAILURE, "%s: %s", path, sqlite3_errmsg(db));
        sqlite3_reset(s);
    }
}

/* The columns that tell a case of a bench from another beside its parameters. Rows of an untimed bench lack some. */
static bool tells_apart(const known_column *c)
{
    return text_starts(c->table, "bench_") && (c->place == 'h' || c->place == 'f') &&
           text_has_word("variant device l2 timer_asked", c->name);
}

/* A dimension of a model, as the function asked() has them. */
enum { DIMENSIONS = 6 };
static bool is_dimension(const char *name)
{
    return text_has_word("d_model d_ff layers heads heads_kv vocab", name);
}

/* Whether the rows of the table are those of a model whose size has a name. */
static bool has_sizes(const known_column *c, size_t first, size_t end)
{
    size_t found = 0;
    for (size_t k = first; k < end; k++)
        found += c[k].place == 'p' && (strcmp(c[k].name, "size") == 0 || is_dimension(c[k].name));
    return found == DIMENSIONS + 1;
}

/* A page has one row of a case: one with another --l2 or --timer stands there only where none is timed by default. */
static void drop_timed_otherwise(sqlite3 *db, const known_column *c, size_t first, size_t end)
{
    sqlite3_str *same = sqlite3_str_new(db), *order = sqlite3_str_new(db);
    for (size_t k = first; k < end; k++) {
        const char *plain = strcmp(c[k].name, "l2") == 0            ? "warm"
                            : strcmp(c[k].name, "timer_asked") == 0 ? "auto"
                                                                    : NULL;
        if (tells_apart(&c[k]) && plain)
            sqlite3_str_appendf(order, "%scoalesce(\"%w\", %Q) <> %Q, coalesce(\"%w\", %Q)",
                                sqlite3_str_length(order) ? ", " : "", c[k].name, plain, plain, c[k].name, plain);
        else if (tells_apart(&c[k]) || c[k].place == 'p')
            sqlite3_str_appendf(same, ", \"%w\"", c[k].name);
    }
    OWNED_SQL char *of_case = sqlite3_str_finish(same), *by = sqlite3_str_finish(order);
    if (by)
        db_run(db, "loading",
               "DELETE FROM raw WHERE id IN (SELECT id FROM (SELECT id, rank() OVER (PARTITION BY bench%s ORDER BY %s) "
               "AS nth FROM raw) WHERE nth > 1)",
               of_case ? of_case : "", by);
}

/* A parameter as it was asked for. */
static void append_asked(sqlite3_str *sql, const char *name, bool sizes)
{
    if (sizes && is_dimension(name))
        sqlite3_str_appendf(sql, "asked('%s', size, d_model, d_ff, layers, heads, heads_kv, vocab)", name);
    else
        sqlite3_str_appendf(sql, "\"%w\"", name);
}

/* Whether rows may have been sustained: those stand in a table of their own, since the newest row of a case may not have been. */
static bool has_sustain(const known_column *c, size_t first, size_t end)
{
    while (first < end && strcmp(c[first].name, "sustain_s") != 0)
        first++;
    return first < end;
}

/* Benches that measure nothing, so that it says nothing on which device they ran. */
static bool on_paper(const char *table)
{
    return strcmp(table, "bench_accounting") == 0 || strcmp(table, "bench_mesh") == 0;
}

/* From raw into a table the newest row of each case: a verified one before others, then of the latest commit one of a run that has peers,
 * since only there is a ratio formed, then the latest. */
static void keep_newest(sqlite3 *db, const char *into, const char *from, const known_column *c, size_t first,
                        size_t end, const char *device)
{
    const char *table = c[first].table;
    const bool ours = text_starts(table, "bench_"), sizes = ours && has_sizes(c, first, end);
    sqlite3_str *order = sqlite3_str_new(db), *custom = sqlite3_str_new(db);
    sqlite3_str *params = sqlite3_str_new(db), *json = sqlite3_str_new(db), *all = sqlite3_str_new(db);
    sqlite3_str *same = sqlite3_str_new(db);
    for (size_t k = first; k < end; k++) {
        sqlite3_str_appendf(all, ", \"%w\"", c[k].name);
        if (tells_apart(&c[k]))
            sqlite3_str_appendf(same, ", \"%w\"", c[k].name);
        if (c[k].place != 'p')
            continue;
        sqlite3_str_appendf(params, ", \"%w\"", c[k].name);
        sqlite3_str_appendf(json, "%s%Q, ", sqlite3_str_length(json) ? ", " : "", c[k].name);
        append_asked(json, c[k].name, sizes);
        sqlite3_str_appendall(order, sqlite3_str_length(order) ? ", " : "");
        append_asked(order, c[k].name, sizes);
        if (sizes && is_dimension(c[k].name)) {
            sqlite3_str_appendall(custom, sqlite3_str_length(custom) ? " OR " : "");
            append_asked(custom, c[k].name, sizes);
        }
    }
    OWNED_SQL char *p = sqlite3_str_finish(params), *j = sqlite3_str_finish(json), *a = sqlite3_str_finish(all);
    OWNED_SQL char *by = sqlite3_str_finish(order), *own = sqlite3_str_finish(custom);
    OWNED_SQL char *partition = sqlite3_mprintf("bench%z%s", sqlite3_str_finish(same), p ? p : "");
    sqlite3_str *sql = sqlite3_str_new(db);
    sqlite3_str_appendf(sql,
                        "INSERT INTO \"%w\"(options, custom, run_of%s) SELECT json_object(%s), %s, coalesce(gpu_uuid, "
                        "(SELECT value FROM machine m WHERE m.run_id = r.run_id AND m.key = 'gpu_uuid'), '') || ' ' || "
                        "coalesce(%s, \"commit\", '')%s "
                        "FROM (SELECT *, row_number() OVER (PARTITION BY %s ORDER BY %s id DESC) AS age "
                        "FROM (SELECT *, min(id) OVER of_case AS first_id, max(utc) OVER (PARTITION BY %s, \"commit\") "
                        "AS commit_utc FROM %s WINDOW of_case AS (PARTITION BY %s))) r WHERE age = 1",
                        into, a, j ? j : "", own ? own : "NULL", ours ? "campaign" : "run_id", a, partition,
                        ours ? "coalesce(\"check\", 1) <> 0 DESC, commit_utc DESC, "
                               "coalesce(campaign, run_id) IN (SELECT run_id FROM peer_runs) DESC, utc DESC,"
                             : "",
                        partition, from, partition);
    if (ours && device && !on_paper(table))
        sqlite3_str_appendf(sql, " AND coalesce(device, %Q) = %Q", device, device);
    else if (device && strcmp(device, "cpu") == 0)
        sqlite3_str_appendall(sql, " AND gpu_uuid IS NULL");
    sqlite3_str_appendf(sql, " ORDER BY %s%s first_id", ours && by ? by : "", ours && by ? "," : "");
    run_str(db, sql);
}

/* The times of cases that several runs at one commit measured on the same GPUs, where each row of a peer is a run of its own: a row of
 * `repeats` for each case and time, with how far the steps of one run are apart, and the clocks. */
static void keep_repeats(sqlite3 *db, const known_column *c, size_t first, size_t end, const char *device)
{
    enum { MEAN, TIMES = 5, P10 = TIMES, P90, MHZ, COLUMNS };
    static const char *const names[] = {"step_mean_ms", "fwd_ms",      "bwd_ms",      "median_ms",
                                        "time_us",      "step_p10_ms", "step_p90_ms", "sm_mhz"};
    const bool ours = text_starts(c[first].table, "bench_"), sizes = ours && has_sizes(c, first, end);
    sqlite3_str *params = sqlite3_str_new(db), *json = sqlite3_str_new(db);
    bool known[COLUMNS] = {false};
    for (size_t k = first; k < end; k++) {
        for (size_t i = 0; i < COLUMNS; i++)
            known[i] |= strcmp(c[k].name, names[i]) == 0;
        if (tells_apart(&c[k]) || c[k].place == 'p')
            sqlite3_str_appendf(params, ", \"%w\"", c[k].name);
        if (c[k].place != 'p' || (!ours && (strcmp(c[k].name, "bench") == 0 || strcmp(c[k].name, "policy") == 0)))
            continue;
        sqlite3_str_appendf(json, "%s%Q, ", sqlite3_str_length(json) ? ", " : "", c[k].name);
        append_asked(json, c[k].name, sizes);
    }
    OWNED_SQL char *p = sqlite3_str_finish(params), *j = sqlite3_str_finish(json);
    OWNED_SQL char *own =
        sqlite3_mprintf("(%Q IS NULL OR coalesce(device, %Q) = %Q) AND status = 'ok' AND", device, device, device);
    /* Parts of a step are no times of their own. */
    for (size_t i = 0; i < TIMES; i++) {
        if (!known[i] || (known[MEAN] && i > 0) || (!ours && i > 0))
            continue;
        db_run(
            db, "loading",
            "INSERT INTO repeats SELECT %s, json_object(%s), %Q, %s AS runs, median(\"%w\"), min(\"%w\"), max(\"%w\"), "
            "%s, %s FROM "
            "raw WHERE %s \"%w\" > 0 GROUP BY gpu_uuid, \"commit\"%s HAVING runs > 1 ORDER BY min(id)",
            ours ? "bench, variant" : "'PyTorch', ''", j ? j : "", names[i],
            ours ? "count(DISTINCT campaign)" : "count(*)", names[i], names[i], names[i],
            known[MEAN] && known[P10] && known[P90] ? "max(100 * (step_p90_ms - step_p10_ms) / step_mean_ms)" : "NULL",
            known[MHZ] ? "min(sm_mhz) || ' to ' || max(sm_mhz)" : "NULL", ours ? own : "", names[i], p ? p : "");
    }
}

/* Every file of a folder, for a path with a star; column `file` says which one a row is from. */
static void load_many(sqlite3 *db, const char *dir, const known_column *c, size_t first, size_t end)
{
    OWNED char *folder = xasprintf("%s/%.*s", dir, (int)strcspn(c[first].path, "*"), c[first].path);
    struct dirent **entries;
    const int n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char *path = xasprintf("%s%s", folder, entries[i]->d_name), *dot = strrchr(entries[i]->d_name, '.');
        OWNED_CSV csv *file = dot && strcmp(dot, ".csv") == 0 ? results_read(path) : NULL;
        if (file && file->rows) {
            *dot = '\0';
            for (char *at = entries[i]->d_name; *at; at++)
                *at = (unsigned char)*at < ' ' ? ' ' : *at;
            insert(db, c[first].table, file, entries[i]->d_name, c, first, end);
        }
        free(path);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

/* Which files there are, and what in them does not count. */
static void note_file(sqlite3 *db, const char *table, const char *path, const csv *file)
{
    OWNED char *lost = csv_lost(file);
    db_run(db, "loading", "INSERT INTO files VALUES(%Q, %Q, %Q)", table, path,
           lost         ? lost
           : file->rows ? NULL
                        : "no rows");
}

/* Rows of a bench with what machine.csv says of their runs. */
static void join(csv *file, const char *path, const known_column *c, size_t first, size_t end)
{
    char *machine = results_machine(path), *refusal = results_refusal(file, path);
    if (refusal)
        die(EXIT_CODE_USAGE, "%s", refusal);
    const char **keys = xcalloc(end - first + 1, sizeof *keys);
    size_t n = 0;
    for (size_t k = first; k < end; k++)
        if (c[k].place == 'f')
            keys[n++] = c[k].name;
    results_join(file, machine, keys);
    free(keys);
    free(machine);
}

static void load(sqlite3 *db, const char *dir, const char *device, const known_column *c, size_t first, size_t end)
{
    OWNED char *path = xasprintf("%s/%s", dir, c[first].path);
    OWNED_CSV csv *file = results_read(path);
    if (text_starts(c[first].table, "bench_"))
        join(file, path, c, first, end);
    if (file)
        note_file(db, c[first].table, c[first].path, file);
    if (file && file->rows && has_options(c[first].table)) {
        create(db, "raw", c, first, end);
        insert(db, "raw", file, path, c, first, end);
        if (device)
            drop_timed_otherwise(db, c, first, end);
        keep_newest(db, c[first].table, "raw", c, first, end, device);
        if (has_sustain(c, first, end)) {
            OWNED char *steady = xasprintf("steady_%s", c[first].table);
            keep_newest(db, steady, "(SELECT * FROM raw WHERE sustain_s > 0)", c, first, end, device);
        }
        if (text_starts(c[first].table, "peer_"))
            db_run(db, path, "INSERT INTO peer_runs SELECT DISTINCT run_id FROM \"%w\"", c[first].table);
        keep_repeats(db, c, first, end, device);
        db_run(db, path, "DROP TABLE raw");
    } else if (file && file->rows) {
        insert(db, c[first].table, file, path, c, first, end);
        if (device && text_starts(c[first].table, "profile_"))
            db_run(db, "loading", "DELETE FROM \"%w\" WHERE device <> %Q", c[first].table, device);
    }
}

sqlite3 *db_open(const char *dir, const char *device)
{
    sqlite3 *db;
    if (sqlite3_open(":memory:", &db) != SQLITE_OK)
        die(EXIT_CODE_FAILURE, "SQLite cannot open a database in memory: %s", sqlite3_errmsg(db));
    sqlite3_db_config(db, SQLITE_DBCONFIG_DQS_DML, 0, NULL); /* "x" is a column, never a text */
    sqlite3_db_config(db, SQLITE_DBCONFIG_DQS_DDL, 0, NULL);
    db_run(db, "SQLite", "PRAGMA temp_store = MEMORY; PRAGMA secure_delete = OFF; PRAGMA trusted_schema = OFF; BEGIN");
    db_functions(db);
    db_run(db, "SQLite",
           "CREATE TABLE files(name, path, lost);"
           "CREATE TABLE repeats(bench, variant, options, time, runs, middle, least, most, own, clocks)");
    db_run(db, "SQLite", "CREATE TABLE peer_runs(run_id)"); /* of peers, which are loaded before the benches */
    size_t n;
    const known_column *c = known_columns(&n);
    for (size_t first = 0, end; first < n; first = end) {
        end = table_end(c, n, first);
        create(db, c[first].table, c, first, end);
        if (has_sustain(c, first, end)) {
            OWNED char *steady = xasprintf("steady_%s", c[first].table);
            create(db, steady, c, first, end);
        }
        if (dir && !device && strchr(c[first].path, '*'))
            load_many(db, dir, c, first, end);
        else if (dir && !strchr(c[first].path, '*'))
            load(db, dir, device, c, first, end);
    }
    db_run(db, "SQLite", "COMMIT");
    return db;
}

void db_warn_lost(sqlite3 *db, const char *before)
{
    OWNED_ROWS sqlite3_stmt *lost =
        db_prepare(db, "report", "SELECT path, lost FROM files WHERE lost IS NOT NULL ORDER BY path");
    while (sqlite3_step(lost) == SQLITE_ROW)
        warn("%s%s: %s", before, (const char *)sqlite3_column_text(lost, 0),
             (const char *)sqlite3_column_text(lost, 1));
}

/* ---- what SQL may do ---- */

static int may_read(void *reads, int action, const char *a, const char *b, const char *c, const char *d)
{
    (void)b, (void)c, (void)d;
    switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE: return SQLITE_OK;
    case SQLITE_FUNCTION: return b && strcmp(b, "load_extension") == 0 ? SQLITE_DENY : SQLITE_OK;
    case SQLITE_ATTACH:
    case SQLITE_DETACH: return SQLITE_DENY;
    case SQLITE_PRAGMA: return a && strcmp(a, "table_info") == 0 ? SQLITE_OK : SQLITE_DENY;
    default: return reads ? SQLITE_DENY : SQLITE_OK;
    }
}

void db_guard(sqlite3 *db, bool reads)
{
    static char yes;
    db_run(db, "SQLite", "SELECT 1 FROM pragma_table_info('machine')"); /* which is made on its first use */
    sqlite3_set_authorizer(db, may_read, reads ? &yes : NULL);
}
