/* SPDX-License-Identifier: MIT */
/* Runs the blocks of a section; see engine.h. An error in SQL names the file and the line of its block. */
#include "plots/report/engine.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/core/text.h"
#include "plots/report/db.h"
#include "plots/report/embedded.h"
#include "plots/report/figures.h"
#include "plots/report/template.h"

typedef struct block {
    int line;
    char *text;
} block;

/* The row of an @each: its columns are :name in the blocks inside. */
typedef struct scope {
    const struct scope *outer;
    int columns;
    char **names;        /* [columns] */
    sqlite3_value **row; /* [columns]; NULL in lint without rows: all are NULL */
} scope;

typedef struct section {
    const page *page;
    document *doc;
    const char *file;
    const scope *scope;
    bool begun;          /* the text block before has begun a text that + adds to */
    const char *problem; /* texts become one bullet under this name */
    bool answered;
} section;

/* ---- statements ---- */

static char *place(const section *s, const block *b)
{
    const bool figure = strchr(s->file, '/');
    return xasprintf("%s/%s:%d", figure ? "plots" : "plots/report/sections", s->file, b->line);
}

static void fail(const section *s, const block *b, const char *what)
{
    die(EXIT_CODE_FAILURE, "%s: %s", place(s, b), what);
}

/* The value of :name, from the row of the innermost @each that has it. */
static void bind_name(const scope *in, sqlite3_stmt *to, int at, const char *name)
{
    for (; in; in = in->outer)
        for (int c = 0; in->row && c < in->columns; c++)
            if (strcmp(name, in->names[c]) == 0) {
                sqlite3_bind_value(to, at, in->row[c]);
                return;
            }
}

static void bind_scope(const section *s, sqlite3_stmt *to)
{
    for (int i = 1; i <= sqlite3_bind_parameter_count(to); i++) {
        const char *name = sqlite3_bind_parameter_name(to, i);
        if (name)
            bind_name(s->scope, to, i, name + 1);
    }
}

static sqlite3_stmt *prepare(const section *s, const block *b, const char *sql)
{
    OWNED char *where = place(s, b);
    sqlite3_stmt *statement = db_prepare(s->page->db, where, sql);
    bind_scope(s, statement);
    return statement;
}

static bool step(const section *s, const block *b, sqlite3_stmt *statement)
{
    const int rc = sqlite3_step(statement);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        fail(s, b, sqlite3_errmsg(s->page->db));
    return rc == SQLITE_ROW;
}

/* With the formats of sqlite3_mprintf. */
static void run(const section *s, const block *b, const char *sql, ...)
{
    va_list values;
    va_start(values, sql);
    OWNED_SQL char *text = sqlite3_vmprintf(sql, values);
    va_end(values);
    OWNED_ROWS sqlite3_stmt *statement = prepare(s, b, text);
    while (step(s, b, statement))
        continue;
}

static int column_of(sqlite3_stmt *statement, const char *name)
{
    for (int c = 0; c < sqlite3_column_count(statement); c++)
        if (strcmp(sqlite3_column_name(statement, c), name) == 0)
            return c;
    return -1;
}

/* ---- texts ---- */

typedef enum text_kind { PARAGRAPH, SECTION, HEADING, BULLET, NOTE, MORE } text_kind;

static void add_text(section *s, text_kind kind, const char *text)
{
    if (s->problem && !s->answered)
        doc_bullet(s->doc, s->problem);
    if (s->problem && (kind != MORE || !s->answered))
        doc_more(s->doc, " ");
    if (s->problem || (kind == MORE && s->begun))
        doc_more(s->doc, text);
    else if (kind == SECTION || kind == HEADING)
        doc_heading(s->doc, kind == SECTION ? 2 : 3, text);
    else if (kind == BULLET)
        doc_bullet(s->doc, text);
    else if (kind == NOTE)
        doc_note(s->doc, text);
    else
        doc_paragraph(s->doc, text + strspn(text, " "));
    s->answered = true;
    s->begun = true;
}

static void text_block(section *s, const block *b)
{
    static const struct {
        const char *mark;
        text_kind kind;
    } marks[] = {{"## ", SECTION}, {"### ", HEADING}, {"- ", BULLET}, {"> ", NOTE}, {"+", MORE}};
    text_kind kind = PARAGRAPH;
    char *text = xstrdup(b->text), *shown = text, *from = strstr(text, "\n@from ");
    if (from) {
        *from = '\0';
        from += strlen("\n@from ");
    }
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (text_starts(text, marks[i].mark)) {
            kind = marks[i].kind;
            shown += strlen(marks[i].mark);
        }
    if (kind != MORE)
        s->begun = false;
    OWNED_SQL char *expression = template_sql(shown);
    if (!expression)
        fail(s, b, "a { or [[ is not closed");
    OWNED_SQL char *sql = sqlite3_mprintf("SELECT %s%s%s", expression, from ? " FROM " : "", from ? from : "");
    OWNED_ROWS sqlite3_stmt *statement = prepare(s, b, sql);
    while (step(s, b, statement)) {
        const char *row = (const char *)sqlite3_column_text(statement, 0);
        if (row)
            add_text(s, kind, row);
    }
    free(text);
}

/* ---- tables ---- */

/* A column of a query that is one of the table: "title", "title:" on the right, "title?" only where it has a value. */
typedef struct column {
    int at, length;
    doc_kind kind;
    bool shown;
} column;

static column column_at(sqlite3_stmt *statement, int at)
{
    const char *name = sqlite3_column_name(statement, at);
    column c = {at, (int)strlen(name), DOC_TEXT, strcmp(name, "status") != 0};
    for (; c.length && (name[c.length - 1] == ':' || name[c.length - 1] == '?'); c.length--)
        if (name[c.length - 1] == ':')
            c.kind = DOC_NUMBER;
        else
            c.shown = false;
    return c;
}

static void add_cell(document *doc, sqlite3_stmt *row, const column *c, const char *status)
{
    const bool real = sqlite3_column_type(row, c->at) == SQLITE_FLOAT,
               none = sqlite3_column_type(row, c->at) == SQLITE_NULL;
    OWNED char *number = real ? number_text(sqlite3_column_double(row, c->at)) : NULL;
    const char *text = number ? number : (const char *)sqlite3_column_text(row, c->at);
    if (none && c->kind == DOC_NUMBER && status && strcmp(status, "ok") != 0)
        text = status;
    doc_cell(doc, text && *text ? text : NULL);
}

/* A column `status` is not shown: it stands in for the numbers of a row that has none. */
static void add_table(section *s, const block *b, const char *sql)
{
    sqlite3_stmt *rows = prepare(s, b, sql);
    const int n = sqlite3_column_count(rows), status = column_of(rows, "status");
    OWNED column *columns = xcalloc((size_t)n, sizeof *columns);
    size_t found = 0;
    if (s->problem)
        fail(s, b, "an answer holds no table");
    for (int c = 0; c < n; c++)
        columns[c] = column_at(rows, c);
    for (; step(s, b, rows); found++)
        for (int c = 0; c < n; c++)
            columns[c].shown = columns[c].shown || (c != status && sqlite3_column_bytes(rows, c) > 0);
    sqlite3_reset(rows);
    if (found)
        doc_table(s->doc);
    for (int c = 0; found && c < n; c++)
        if (columns[c].shown) {
            OWNED char *name = xasprintf("%.*s", columns[c].length, sqlite3_column_name(rows, c));
            doc_column(s->doc, columns[c].kind, name);
        }
    while (step(s, b, rows)) {
        doc_row(s->doc);
        for (int c = 0; c < n; c++)
            if (columns[c].shown)
                add_cell(s->doc, rows, &columns[c],
                         status < 0 ? NULL : (const char *)sqlite3_column_text(rows, status));
    }
    sqlite3_finalize(rows);
    s->begun = false;
}

/* A query in long form: column `across` holds titles of columns and `cell` what is in them; the others name the row. Both are in
 * the order in which they appear. */
static void add_grid(section *s, const block *b, const char *sql)
{
    run(s, b, "DROP TABLE IF EXISTS temp.long_");
    run(s, b, "CREATE TEMP TABLE long_ AS SELECT row_number() OVER () AS row_, * FROM (%s)", sql);
    sqlite3_stmt *rows = prepare(s, b, "SELECT * FROM temp.long_");
    if (column_of(rows, "across") < 0 || column_of(rows, "cell") < 0)
        fail(s, b, "@grid needs the columns across and cell");
    sqlite3_str *keys = sqlite3_str_new(s->page->db), *cells = sqlite3_str_new(s->page->db);
    for (int c = 1; c < sqlite3_column_count(rows); c++)
        if (c != column_of(rows, "across") && c != column_of(rows, "cell"))
            sqlite3_str_appendf(keys, "%s\"%w\"", sqlite3_str_length(keys) ? ", " : "", sqlite3_column_name(rows, c));
    sqlite3_finalize(rows);
    sqlite3_stmt *titles =
        prepare(s, b, "SELECT across FROM temp.long_ WHERE across IS NOT NULL GROUP BY 1 ORDER BY min(row_)");
    while (step(s, b, titles)) {
        const char *title = (const char *)sqlite3_column_text(titles, 0);
        sqlite3_str_appendf(cells, ", coalesce(max(iif(across = %Q, show(cell), NULL)), '') AS \"%w\"", title, title);
    }
    sqlite3_finalize(titles);
    OWNED_SQL char *of_row = sqlite3_str_finish(keys), *wide = sqlite3_str_finish(cells);
    OWNED_SQL char *query =
        sqlite3_mprintf("SELECT %s%s FROM temp.long_ GROUP BY %s ORDER BY min(row_)", of_row, wide ? wide : "", of_row);
    add_table(s, b, query);
}

/* ---- tables of the section's own ---- */

/* The first word of *rest, which moves behind it. Caller frees. */
static char *word(const char **rest)
{
    const size_t length = strcspn(*rest, " \n");
    char *text = xasprintf("%.*s", (int)length, *rest);
    *rest += length;
    *rest += strspn(*rest, " \n");
    return text;
}

static void view_block(const section *s, const block *b, const char *rest)
{
    OWNED char *name = word(&rest);
    run(s, b, "DROP TABLE IF EXISTS temp.\"%w\"", name);
    run(s, b, "CREATE TEMP TABLE \"%w\" AS %s", name, rest);
}

/* @into NAME: adds rows to a table that other sections read, too. */
static void into_block(const section *s, const block *b, const char *rest)
{
    OWNED char *name = word(&rest);
    run(s, b, "CREATE TABLE IF NOT EXISTS main.\"%w\" AS SELECT * FROM (%s) WHERE 0", name, rest);
    run(s, b, "INSERT INTO main.\"%w\" SELECT * FROM (%s)", name, rest);
}

/* @slice NAME FROM TABLE ALONG a, b [WHERE ...]: the most rows that differ in nothing else, and in the variant. */
static void slice_block(const section *s, const block *b, const char *rest)
{
    OWNED char *name = word(&rest), *from = word(&rest), *table = word(&rest), *along = word(&rest);
    const char *where = strstr(rest, "WHERE");
    OWNED char *axes = xasprintf("%.*s", (int)(where ? (size_t)(where - rest) : strlen(rest)), rest);
    if (strcmp(from, "FROM") != 0 || strcmp(along, "ALONG") != 0)
        fail(s, b, "@slice NAME FROM TABLE ALONG COLUMN, ...");
    sqlite3_str *paths = sqlite3_str_new(s->page->db);
    char *at = axes;
    for (char *axis; (axis = strsep(&at, ", \n"));)
        if (*axis)
            sqlite3_str_appendf(paths, ", '$.%q'", axis);
    OWNED_SQL char *list = sqlite3_str_finish(paths);
    run(s, b, "DROP TABLE IF EXISTS temp.\"%w\"", name);
    run(s, b,
        "CREATE TEMP TABLE \"%w\" AS WITH of_ AS (SELECT *, json_remove(options%s) || device AS "
        "rest_of FROM \"%w\" %s) "
        "SELECT * FROM of_ WHERE rest_of = (SELECT rest_of FROM of_ GROUP BY 1 ORDER BY count(*) DESC, "
        "min(id) LIMIT 1)",
        name, list ? list : "", table, where ? where : "");
}

/* " a b ": between blanks, so that a name is found whole. Caller frees. */
static char *one_line(const char *names)
{
    char *text = xasprintf(" %s ", names);
    for (char *at = text; (at = strchr(at, '\n'));)
        *at = ' ';
    return text;
}

/* "a", "b" ...: the columns of a table, of those in `only` where it is given. Free with sqlite3_free. */
static char *columns_of(const section *s, const block *b, const char *table, const char *only)
{
    sqlite3_str *list = sqlite3_str_new(s->page->db);
    char *sql = sqlite3_mprintf("SELECT name FROM pragma_table_info(%Q)", table), *wanted = one_line(only);
    OWNED_ROWS sqlite3_stmt *columns = prepare(s, b, sql);
    while (step(s, b, columns)) {
        OWNED char *name = xasprintf(" %s ", (const char *)sqlite3_column_text(columns, 0));
        if (!*only || strstr(wanted, name))
            sqlite3_str_appendf(list, ", \"%w\"", sqlite3_column_text(columns, 0));
    }
    sqlite3_free(sql);
    free(wanted);
    return sqlite3_str_finish(list);
}

/* @union NAME TABLE ... [OF COLUMN ...]: their rows one below the other, by the names of columns; `bench_table` says whose a row is. */
static void union_block(const section *s, const block *b, const char *rest)
{
    OWNED char *name = word(&rest);
    const char *of = strstr(rest, "OF ");
    const char *only = of ? of + 3 : "";
    sqlite3_str *tables = sqlite3_str_new(s->page->db);
    for (const char *at = rest; *at && at != of;) {
        OWNED char *table = word(&at);
        sqlite3_str_appendf(tables, "%s%Q", sqlite3_str_length(tables) ? ", " : "", table);
    }
    char *list = sqlite3_str_finish(tables), *wanted = one_line(only);
    OWNED_SQL char *sql =
        sqlite3_mprintf("SELECT group_concat(printf('\"%%w\" %%s', name, type), ', ') FROM (SELECT i.name, "
                        "i.type, min(m.rowid * 1000 + i.cid) AS place "
                        "FROM sqlite_schema m JOIN pragma_table_info(m.name) i WHERE m.name IN (%s) AND (%Q = "
                        "'  ' OR instr(%Q, ' ' || i.name || ' ')) "
                        "GROUP BY i.name ORDER BY place)",
                        list, wanted, wanted);
    OWNED char *where = place(s, b), *columns = db_text(s->page->db, where, sql);
    run(s, b, "DROP TABLE IF EXISTS temp.\"%w\"", name);
    run(s, b, "CREATE TEMP TABLE \"%w\"(bench_table, %s)", name, columns);
    while (*rest && rest != of) {
        char *table = word(&rest), *names = columns_of(s, b, table, only);
        run(s, b, "INSERT INTO temp.\"%w\"(bench_table%s) SELECT %Q%s FROM \"%w\" ORDER BY id", name, names, table,
            names, table);
        sqlite3_free(names);
        free(table);
    }
    sqlite3_free(list);
    free(wanted);
}

/* ---- figures ---- */

/* The first column of all rows, with blanks between them. Caller frees. */
static char *joined(const section *s, const block *b, const char *query)
{
    char *text;
    unsigned long bytes;
    FILE *out = text_stream(&text, &bytes);
    sqlite3_stmt *rows = prepare(s, b, query);
    for (bool any = false; step(s, b, rows); any = true)
        fprintf(out, "%s%s", any ? " " : "",
                sqlite3_column_bytes(rows, 0) ? (const char *)sqlite3_column_text(rows, 0) : "");
    sqlite3_finalize(rows);
    fclose(out);
    return text;
}

static void quote_gnuplot(FILE *out, const char *name, const char *text)
{
    fprintf(out, "%s = '", name);
    for (; *text; text++)
        fprintf(out, *text == '\'' ? "''" : "%c", *text);
    fputs("'\n", out);
}

static FILE *open_drawing(const section *s, const block *b, const char *name, const char *suffix)
{
    if (name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")])
        fail(s, b, "the name of a figure has a character that no file should have");
    OWNED char *path = xasprintf("%s/%s.%s", s->page->drawings, name, suffix);
    FILE *out = fopen(path, "w");
    if (!out)
        die(EXIT_CODE_FAILURE, "%s cannot be written", path);
    return out;
}

/* A column of numbers holds a text where a file does, and this one is not quoted. */
static bool is_number(const char *text)
{
    return *text && !text[strspn(text, "0123456789.e+-")];
}

/* gnuplot reads no quotes inside quotes: what is JSON is left out. */
static bool is_json(const char *column)
{
    return text_has_word("options rest_of same", column);
}

static void write_data(const section *s, const block *b, const char *name)
{
    FILE *out = open_drawing(s, b, name, "csv");
    sqlite3_stmt *rows = prepare(s, b, "SELECT * FROM temp.drawn");
    const int n = sqlite3_column_count(rows);
    const char *comma = "";
    for (int c = 0; c < n; c++)
        if (!is_json(sqlite3_column_name(rows, c))) {
            fprintf(out, "%s%s", comma, sqlite3_column_name(rows, c));
            comma = ",";
        }
    while (step(s, b, rows)) {
        comma = "\n";
        for (int c = 0; c < n; c++) {
            if (is_json(sqlite3_column_name(rows, c)))
                continue;
            const char *text = (const char *)sqlite3_column_text(rows, c), *kind = sqlite3_column_decltype(rows, c);
            OWNED char *cell = csv_quoted(text ? text : kind && strcmp(kind, "TEXT") == 0 ? "" : "nan");
            fprintf(out, "%s%s", comma, cell);
            comma = ",";
        }
    }
    fputc('\n', out);
    sqlite3_finalize(rows);
    fclose(out);
}

/* @draw NAME: TITLE, lines `variable = QUERY` (a list) or `variable := QUERY` (a number), and the query of the rows, which is `drawn` to the
 * title and to the variables. Writes NAME.csv and NAME.gp, and prints the figure's name and its own. */
static void draw_block(const section *s, const block *b, const char *rest)
{
    const char *colon = strstr(rest, ": "), *query = strstr(rest, "\nSELECT");
    if (!colon || !query || strcspn(rest, "\n") < (size_t)(colon - rest))
        fail(s, b, "@draw NAME: TITLE, and a query below");
    OWNED char *name_text = xasprintf("%.*s", (int)(colon - rest), rest),
               *title_text = xasprintf("%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    OWNED_SQL char *name_sql = template_sql(name_text), *title_sql = template_sql(title_text);
    run(s, b, "DROP TABLE IF EXISTS temp.drawn");
    run(s, b, "CREATE TEMP TABLE drawn AS %s", query);
    OWNED_SQL char *name_query = sqlite3_mprintf("SELECT %s", name_sql),
                   *title_query = sqlite3_mprintf("SELECT %s FROM drawn LIMIT 1", title_sql);
    OWNED char *name = joined(s, b, name_query), *title = joined(s, b, title_query),
               *rows = joined(s, b, "SELECT count(*) FROM drawn");
    OWNED char *caption =
        joined(s, b,
               "SELECT machine || ', ' || gpu || ', ' || iif(substr(min(utc), 1, 10) = substr(max(utc), 1, "
               "10), '', substr(min(utc), 1, 10) || ' to ') "
               "|| substr(max(utc), 1, 10) FROM drawn");
    const bool drawn = s->page->drawings && strcmp(rows, "0") != 0;
    FILE *out = drawn ? open_drawing(s, b, name, "gp") : NULL;
    if (out) {
        quote_gnuplot(out, "title", title);
        quote_gnuplot(out, "caption", caption);
        write_data(s, b, name);
        printf("%s %s\n", s->page->figure, name);
    }
    for (const char *at = rest + strcspn(rest, "\n"), *next; at < query; at = next) {
        at++;
        for (next = at + strcspn(at, "\n"); next[0] == '\n' && next[1] == ' ';) /* a line that goes on */
            next += 1 + strcspn(next + 1, "\n");
        const size_t line = (size_t)(next - at);
        const char *equals = memchr(at, '=', line);
        if (!equals || equals == at)
            fail(s, b, "a variable of @draw is NAME = QUERY or NAME := QUERY");
        const bool number = equals[-1] == ':';
        OWNED char *variable = xasprintf("%.*s", (int)strcspn(at, " "), at),
                   *sql = xasprintf("%.*s", (int)(at + line - equals - 1), equals + 1);
        OWNED char *value = joined(s, b, sql);
        if (out && number)
            fprintf(out, "%s = %s\n", variable, is_number(value) ? value : "0");
        else if (out)
            quote_gnuplot(out, variable, value);
    }
    if (out)
        fclose(out);
}

/* ---- blocks that hold others ---- */

static void write_blocks(section *s, const block *blocks, size_t n);

static bool is_word(const char *text, const char *word)
{
    const size_t length = strlen(word);
    return strncmp(text, word, length) == 0 && !isalnum((unsigned char)text[length]) && text[length] != '_';
}

/* Where the block at `at` ends: at itself, at its @end, a problem also at the next one, a problem or condition at the end of the file. */
static size_t end_of(const section *s, const block *blocks, size_t n, size_t at)
{
    static const char *const holding[] = {"@each", "@if", "@fold", "@problem"};
    const bool problem = is_word(blocks[at].text, "@problem");
    int depth = 0;
    for (size_t i = at; i < n; i++) {
        if (i > at && problem && depth == 1 && is_word(blocks[i].text, "@problem"))
            return i;
        for (size_t k = 0; k < sizeof holding / sizeof *holding; k++)
            depth += is_word(blocks[i].text, holding[k]);
        depth -= is_word(blocks[i].text, "@end");
        if (!depth)
            return i;
    }
    if (!problem && !is_word(blocks[at].text, "@if"))
        fail(s, &blocks[at], "there is no @end");
    return n;
}

static void write_row(section *s, scope *in, sqlite3_value **row, const block *inside, size_t n)
{
    in->row = row;
    s->scope = in;
    write_blocks(s, inside, n);
    s->scope = in->outer;
}

/* All rows first: what is inside drops tables, which SQLite allows only when nothing is being read. */
static void each_block(section *s, const block *b, const char *sql, const block *inside, size_t n)
{
    sqlite3_stmt *rows = prepare(s, b, sql);
    scope in = {.outer = s->scope, .columns = sqlite3_column_count(rows)};
    const size_t columns = (size_t)in.columns;
    OWNED sqlite3_value **values = NULL;
    size_t count = 0;
    in.names = xcalloc(columns, sizeof *in.names);
    for (int c = 0; c < in.columns; c++)
        in.names[c] = xstrdup(sqlite3_column_name(rows, c));
    for (; step(s, b, rows); count++) {
        values = xrealloc(values, (count + 1) * columns * sizeof(sqlite3_value *));
        for (int c = 0; c < in.columns; c++)
            values[count * columns + (size_t)c] = sqlite3_value_dup(sqlite3_column_value(rows, c));
    }
    sqlite3_finalize(rows);
    for (size_t r = 0; r < count; r++)
        write_row(s, &in, values + r * columns, inside, n);
    if (!count && s->page->lint)
        write_row(s, &in, NULL, inside, n);
    for (size_t i = 0; i < count * columns; i++)
        sqlite3_value_free(values[i]);
    for (size_t c = 0; c < columns; c++)
        free(in.names[c]);
    free(in.names);
}

static void if_block(section *s, const block *b, const char *condition, const block *inside, size_t n)
{
    char *sql = sqlite3_mprintf("SELECT 1 WHERE %s", condition);
    sqlite3_stmt *statement = prepare(s, b, sql);
    const bool holds = step(s, b, statement);
    sqlite3_finalize(statement);
    sqlite3_free(sql);
    if (holds || s->page->lint)
        write_blocks(s, inside, n);
}

static void fold_block(section *s, const char *summary, const block *inside, size_t n)
{
    section in = *s;
    in.doc = doc_create("");
    write_blocks(&in, inside, n);
    if (!doc_empty(in.doc)) {
        doc_fold(s->doc, summary);
        doc_append(s->doc, in.doc);
        doc_fold_end(s->doc);
    } else {
        doc_free(in.doc);
    }
}

/* @problem NAME (EDITIONS): SECTION. The texts inside are its answer, one bullet; without rows for any, its name is one of
 * those that this machine leaves open. */
static void problem_block(section *s, const block *b, const char *rest, const block *inside, size_t n)
{
    char *colon = strstr(rest, "): "), *open = strchr(rest, '(');
    if (!colon || !open)
        fail(s, b, "@problem NAME (EDITIONS): SECTION");
    OWNED char *name = xasprintf("%.*s", (int)(open - rest - 1), rest), *id = heading_id(colon + 3);
    OWNED char *title = xasprintf("%c%c%s%c%c#%s%c %.*s:", DOC_LINK, DOC_STRONG, name, DOC_STRONG_END, DOC_LINK_ADDRESS,
                                  id, DOC_LINK_END, (int)(colon + 1 - open), open);
    s->problem = title;
    s->answered = false;
    write_blocks(s, inside, n);
    if (!s->answered)
        run(s, b, "INSERT INTO main.unanswered VALUES(%Q)", name);
    s->problem = NULL;
}

static void use_block(section *s, const block *b, const char *rest);

static void write_blocks(section *s, const block *blocks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const block *b = &blocks[i], *inside = b + 1;
        const char *rest = b->text + strcspn(b->text, " \n");
        rest += *rest ? 1 : 0;
        const size_t end = end_of(s, blocks, n, i), held = end > i ? end - i - 1 : 0;
        i = end > i && (end == n || is_word(blocks[end].text, "@problem")) ? end - 1 : end;
        if (*b->text != '@')
            text_block(s, b);
        else if (is_word(b->text, "@view"))
            view_block(s, b, rest);
        else if (is_word(b->text, "@table"))
            add_table(s, b, rest);
        else if (is_word(b->text, "@grid"))
            add_grid(s, b, rest);
        else if (is_word(b->text, "@slice"))
            slice_block(s, b, rest);
        else if (is_word(b->text, "@union"))
            union_block(s, b, rest);
        else if (is_word(b->text, "@into"))
            into_block(s, b, rest);
        else if (is_word(b->text, "@figures"))
            add_figures(s->doc, s->page->folder, rest);
        else if (is_word(b->text, "@draw"))
            draw_block(s, b, rest);
        else if (is_word(b->text, "@contents"))
            doc_contents(s->doc);
        else if (is_word(b->text, "@use"))
            use_block(s, b, rest);
        else if (is_word(b->text, "@each"))
            each_block(s, b, rest, inside, held);
        else if (is_word(b->text, "@if"))
            if_block(s, b, rest, inside, held);
        else if (is_word(b->text, "@fold"))
            fold_block(s, rest, inside, held);
        else if (is_word(b->text, "@problem"))
            problem_block(s, b, rest, inside, held);
        else
            fail(s, b, "this is no block");
    }
}

/* ---- files ---- */

/* Blocks are divided by empty lines; a line that begins with -- is a comment. Changes text. */
static block *blocks_of(char *text, size_t *n)
{
    block *blocks = NULL, *open = NULL;
    int line = 0;
    *n = 0;
    for (char *next = text, *at; (at = strsep(&next, "\n"));) {
        line++;
        if (strncmp(at, "--", 2) == 0)
            continue;
        if (!*at) {
            open = NULL;
        } else if (open) {
            char *more = xasprintf("%s\n%s", open->text, at);
            free(open->text);
            open->text = more;
        } else {
            blocks = xrealloc(blocks, (*n + 1) * sizeof *blocks);
            open = &blocks[(*n)++];
            *open = (block){line, xstrdup(at)};
        }
    }
    return blocks;
}

static void blocks_free(block *blocks, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(blocks[i].text);
    free(blocks);
}

static char *replaced(char *text, const char *what, const char *by)
{
    for (char *at = text; (at = strstr(at, what));) {
        char *more = xasprintf("%.*s%s%s", (int)(at - text), text, by, at + strlen(what));
        at = more + (at - text) + strlen(by);
        free(text);
        text = more;
    }
    return text;
}

/* @use FILE WORD ...: the blocks of another file, with $1, $2 ... by the words. */
static void use_block(section *s, const block *b, const char *rest)
{
    OWNED char *name = word(&rest), *file = xasprintf("%s.sql", name);
    if (!embedded_text(file))
        fail(s, b, "there is no such file");
    char *text = xstrdup(embedded_text(file)), argument[] = "$1";
    for (; *rest; argument[1]++) {
        OWNED char *by = word(&rest);
        text = replaced(text, argument, by);
    }
    size_t n;
    block *blocks = blocks_of(text, &n);
    section in = *s;
    in.file = file;
    write_blocks(&in, blocks, n);
    s->begun = in.begun;
    s->answered = in.answered;
    blocks_free(blocks, n);
    free(text);
}

/* A section's first block: @section ORDER TITLE, and in a second line @of TABLE ... */
typedef struct head {
    int order;
    const embedded *file;
    char *title, *of;
} head;

static bool head_of(const embedded *e, head *h)
{
    const char *at = e->text ? strstr(e->text, "@section ") : NULL;
    if (!at)
        return false;
    char *after;
    h->file = e;
    h->order = (int)strtol(at + strlen("@section "), &after, 10);
    after += strspn(after, " ");
    h->title = xasprintf("%.*s", (int)strcspn(after, "\n"), after);
    const char *of = after + strcspn(after, "\n");
    of = strncmp(of, "\n@of ", 5) == 0 ? of + 5 : "";
    h->of = xasprintf("%.*s", (int)strcspn(of, "\n"), of);
    return true;
}

static bool has_rows(const section *s, const block *b, const char *tables)
{
    bool has = !*tables || s->page->lint;
    while (*tables) {
        char *table = word(&tables), *sql = sqlite3_mprintf("SELECT 1 FROM \"%w\" LIMIT 1", table);
        sqlite3_stmt *statement = prepare(s, b, sql);
        has = step(s, b, statement) || has;
        sqlite3_finalize(statement);
        sqlite3_free(sql);
        free(table);
    }
    return has;
}

static void drop_views(const page *p)
{
    char *name;
    while ((name = db_text(p->db, "report", "SELECT name FROM sqlite_temp_schema WHERE type = 'table' LIMIT 1"))) {
        db_run(p->db, "report", "DROP TABLE temp.\"%w\"", name);
        free(name);
    }
}

static void write_section(const page *p, const head *h)
{
    size_t n;
    OWNED char *text = xstrdup(h->file->text);
    block *blocks = blocks_of(text, &n);
    section s = {.page = p, .doc = doc_create(""), .file = h->file->name};
    if (has_rows(&s, &blocks[0], h->of))
        write_blocks(&s, blocks + 1, n - 1);
    const bool folded = h->order > 0 && !doc_empty(s.doc);
    if (folded)
        doc_fold(p->doc, h->title);
    doc_append(p->doc, s.doc);
    if (folded)
        doc_fold_end(p->doc);
    drop_views(p);
    blocks_free(blocks, n);
}

static int by_order(const void *a, const void *b)
{
    const head *x = a, *y = b;
    return x->order != y->order ? (x->order > y->order) - (x->order < y->order) : strcmp(x->file->name, y->file->name);
}

void page_use(const page *p, const char *file)
{
    size_t n;
    OWNED char *text = xstrdup(embedded_text(file));
    block *blocks = blocks_of(text, &n);
    section s = {.page = p, .doc = p->doc, .file = file};
    write_blocks(&s, blocks, n);
    drop_views(p);
    blocks_free(blocks, n);
}

void page_write(const page *p, int last)
{
    size_t n = 0;
    OWNED head *heads = NULL;
    for (const embedded *e = embedded_files; e->name; e++) {
        heads = xrealloc(heads, (n + 1) * sizeof *heads);
        n += head_of(e, &heads[n]);
    }
    qsort(heads, n, sizeof *heads, by_order);
    db_run(p->db, "report", "CREATE TABLE main.unanswered(name)");
    for (size_t i = 0; i < n; i++) {
        if (heads[i].order <= last)
            write_section(p, &heads[i]);
        free(heads[i].title);
        free(heads[i].of);
    }
}
