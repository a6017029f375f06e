/* SPDX-License-Identifier: MIT */
/* A folder of results as a database in memory: a table for each CSV file that this version knows, and functions for SQL.
 *
 * The tables and their columns are known when the report is built: those of the benches from `--list`, the others from tables.txt.
 * A column that a file lacks is NULL; a column or file that is not known is left out, so no name of a stranger's reaches SQL.
 * Values are bound. bench_* and peer_* hold the newest row of each case, in the order of the parameters. */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>

/* One known column. Parameters have a default, which case names leave out; a list as the default goes on being named. */
typedef struct known_column {
    const char *table, *path, *name;
    char kind;  /* 'i' int, 'r' real, 't' text */
    char place; /* 'h' of every bench, 'p' parameter, 'm' measured, 'f' of the run, in machine.csv */
    const char *plain;
} known_column;

/* The known columns, those of a table behind each other; valid for the whole program. */
const known_column *known_columns(size_t *n);

/* dir NULL: tables without rows. device NULL: rows of all devices; else those of this one alone, and no recordings: the tables of several
 * files, which a page does not read. */
sqlite3 *db_open(const char *dir, const char *device);
/* Says what of the files does not count, with `before` in front of their paths. */
void db_warn_lost(sqlite3 *db, const char *before);
void db_functions(sqlite3 *db); /* functions.c */
/* Other files cannot be attached from here on, nor settings changed; with `reads`, nothing can be changed at all. */
void db_guard(sqlite3 *db, bool reads);

/* Runs statements, with the formats of sqlite3_mprintf; dies with the error behind `where`, a file and its line. */
void db_run(sqlite3 *db, const char *where, const char *sql, ...);
sqlite3_stmt *db_prepare(sqlite3 *db, const char *where, const char *sql);
/* The first column of the first row; NULL without one or for NULL. Caller frees. */
char *db_text(sqlite3 *db, const char *where, const char *sql);

/* Like OWNED, for what SQLite allocates, and for statements. */
#define OWNED_SQL __attribute__((cleanup(owned_sql_free)))
#define OWNED_ROWS __attribute__((cleanup(owned_rows_end)))
static inline void owned_sql_free(void *text)
{
    sqlite3_free(*(void **)text);
}
static inline void owned_rows_end(sqlite3_stmt **rows)
{
    sqlite3_finalize(*rows);
}
