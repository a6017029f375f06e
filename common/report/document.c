/* SPDX-License-Identifier: MIT */
/* The blocks of a document in memory, and handing them to a writer; see document.h. */
#include "common/report/document.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

typedef enum block_kind {
    HEADING,
    PARAGRAPH,
    BULLETS,
    NOTE,
    PREFORMATTED,
    FIGURE,
    FOLD,
    FOLD_END,
    TABLE,
    CONTENTS
} block_kind;

typedef struct block {
    block_kind kind;
    int level;    /* of a heading */
    size_t n;     /* texts */
    char **texts; /* one; of bullets one each; of a figure file, alt and caption */
    doc_grid grid;
} block;

struct document {
    char *title;
    size_t n;
    block *blocks;
    char **open; /* the text begun last, or NULL */
};

/* ---- marks ---- */

static const char *marked(const char *begin, char mark, const char *format, va_list args, char end)
{
    enum { TEXTS = 32 };
    static char *texts[TEXTS];
    static unsigned next;
    char *inner = NULL;
    if (vasprintf(&inner, format, args) < 0)
        die(EXIT_CODE_FAILURE, "no host memory left for the report");
    char **text = &texts[next++ % TEXTS];
    free(*text);
    *text = xasprintf("%s%c%s%c", begin, mark, inner, end);
    free(inner);
    return *text;
}

const char *strong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = marked("", DOC_STRONG, format, args, DOC_STRONG_END);
    va_end(args);
    return text;
}

const char *code(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = marked("", DOC_CODE, format, args, DOC_CODE_END);
    va_end(args);
    return text;
}

char *heading_id(const char *heading)
{
    char *id = xmalloc(strlen(heading) + 1);
    size_t n = 0;
    for (; *heading && *heading != DOC_LINK_ADDRESS; heading++) {
        const unsigned char c = (unsigned char)*heading;
        if (c == ' ')
            id[n++] = '-';
        else if (isalnum(c) || c == '-' || c == '_' || c >= 0x80)
            id[n++] = (char)(c < 0x80 ? tolower(c) : c);
    }
    id[n] = '\0';
    return id;
}

const char *link_to_heading(const char *heading)
{
    char *id = heading_id(heading);
    const char *text = link_to(heading, "#%s", id);
    free(id);
    return text;
}

const char *link_to(const char *shown, const char *address, ...)
{
    char *begin = xasprintf("%c%s", DOC_LINK, shown);
    va_list args;
    va_start(args, address);
    const char *text = marked(begin, DOC_LINK_ADDRESS, address, args, DOC_LINK_END);
    va_end(args);
    free(begin);
    return text;
}

/* ---- building ---- */

document *doc_create(const char *title)
{
    document *d = xcalloc(1, sizeof *d);
    d->title = xstrdup(title);
    return d;
}

static void texts_free(char **texts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(texts[i]);
    free(texts);
}

static void block_free(block *b)
{
    texts_free(b->texts, b->n);
    texts_free(b->grid.names, b->grid.columns);
    for (size_t r = 0; r < b->grid.rows; r++)
        texts_free(b->grid.lines[r].text, b->grid.lines[r].cells);
    free(b->grid.lines);
    free(b->grid.kinds);
}

void doc_free(document *d)
{
    for (size_t i = 0; d && i < d->n; i++)
        block_free(&d->blocks[i]);
    if (d) {
        free(d->blocks);
        free(d->title);
    }
    free(d);
}

bool doc_empty(const document *d)
{
    return !d->n;
}

void doc_append(document *d, document *part)
{
    d->blocks = xrealloc(d->blocks, (d->n + part->n + 1) * sizeof *d->blocks);
    if (part->n)
        memcpy(d->blocks + d->n, part->blocks, part->n * sizeof *d->blocks);
    d->n += part->n;
    d->open = NULL;
    part->n = 0;
    doc_free(part);
}

static block *begin_block(document *d, block_kind kind)
{
    d->blocks = xrealloc(d->blocks, (d->n + 1) * sizeof *d->blocks);
    d->blocks[d->n] = (block){.kind = kind};
    d->open = NULL;
    return &d->blocks[d->n++];
}

/* Room for one more text in a list of n, which becomes the one that is open. */
static void begin_text(document *d, char ***texts, size_t *n)
{
    *texts = xrealloc(*texts, (*n + 1) * sizeof **texts);
    d->open = &(*texts)[(*n)++];
    *d->open = NULL;
}

static void add(document *d, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    const int more = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (!d->open || more < 0)
        die(EXIT_CODE_FAILURE, "report: '%s' belongs to no text", format);
    const size_t length = *d->open ? strlen(*d->open) : 0;
    *d->open = xrealloc(*d->open, length + (size_t)more + 1);
    vsnprintf(*d->open + length, (size_t)more + 1, format, args);
}

#define ADD(d, format)                                                                                                 \
    do {                                                                                                               \
        va_list args;                                                                                                  \
        va_start(args, format);                                                                                        \
        add(d, format, args);                                                                                          \
        va_end(args);                                                                                                  \
    } while (0)

static block *begin_with_text(document *d, block_kind kind)
{
    block *b = begin_block(d, kind);
    begin_text(d, &b->texts, &b->n);
    return b;
}

void doc_heading(document *d, int level, const char *format, ...)
{
    begin_with_text(d, HEADING)->level = level;
    ADD(d, format);
}

void doc_paragraph(document *d, const char *format, ...)
{
    begin_with_text(d, PARAGRAPH);
    ADD(d, format);
}

void doc_bullet(document *d, const char *format, ...)
{
    block *b = d->n && d->blocks[d->n - 1].kind == BULLETS ? &d->blocks[d->n - 1] : begin_block(d, BULLETS);
    begin_text(d, &b->texts, &b->n);
    ADD(d, format);
}

void doc_note(document *d, const char *format, ...)
{
    begin_with_text(d, NOTE);
    ADD(d, format);
}

void doc_preformatted(document *d, const char *format, ...)
{
    begin_with_text(d, PREFORMATTED);
    ADD(d, format);
}

void doc_fold(document *d, const char *format, ...)
{
    begin_with_text(d, FOLD);
    ADD(d, format);
}

void doc_fold_end(document *d)
{
    begin_block(d, FOLD_END);
}

void doc_contents(document *d)
{
    begin_block(d, CONTENTS);
}

void doc_figure(document *d, const char *file, const char *alt, const char *caption)
{
    block *b = begin_block(d, FIGURE);
    const char *const texts[] = {file, alt, caption};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        begin_text(d, &b->texts, &b->n);
        *d->open = xstrdup(texts[i]);
    }
    d->open = NULL;
}

void doc_more(document *d, const char *format, ...)
{
    ADD(d, format);
}

/* ---- tables ---- */

void doc_table(document *d)
{
    begin_block(d, TABLE);
}

static doc_grid *open_grid(document *d)
{
    if (!d->n || d->blocks[d->n - 1].kind != TABLE)
        die(EXIT_CODE_FAILURE, "report: a column or row outside a table");
    return &d->blocks[d->n - 1].grid;
}

static void begin_column(document *d, doc_kind kind)
{
    doc_grid *g = open_grid(d);
    g->kinds = xrealloc(g->kinds, (g->columns + 1) * sizeof *g->kinds);
    g->kinds[g->columns] = kind;
    begin_text(d, &g->names, &g->columns);
}

void doc_column(document *d, doc_kind kind, const char *format, ...)
{
    begin_column(d, kind);
    ADD(d, format);
}

void doc_columns(document *d, doc_kind kind, ...)
{
    va_list names;
    va_start(names, kind);
    for (const char *name; (name = va_arg(names, const char *));)
        doc_column(d, kind, "%s", name);
    va_end(names);
}

static void begin_cell(document *d)
{
    doc_grid *g = open_grid(d);
    doc_line *line = g->rows ? &g->lines[g->rows - 1] : NULL;
    if (!line || line->cells == g->columns)
        die(EXIT_CODE_FAILURE, "report: a row with more cells than the %zu columns of its table", g->columns);
    begin_text(d, &line->text, &line->cells);
}

void doc_cell(document *d, const char *format, ...)
{
    begin_cell(d);
    ADD(d, format);
}

void doc_blank(document *d)
{
    begin_cell(d);
    d->open = NULL;
}

static void add_cells(document *d, va_list cells)
{
    for (const char *cell; (cell = va_arg(cells, const char *));)
        doc_cell(d, "%s", cell);
}

void doc_row(document *d, ...)
{
    doc_grid *g = open_grid(d);
    g->lines = xrealloc(g->lines, (g->rows + 1) * sizeof *g->lines);
    g->lines[g->rows++] = (doc_line){0, NULL};
    d->open = NULL;
    va_list cells;
    va_start(cells, d);
    add_cells(d, cells);
    va_end(cells);
}

void doc_cells(document *d, ...)
{
    va_list cells;
    va_start(cells, d);
    add_cells(d, cells);
    va_end(cells);
}

/* ---- writing ---- */

const char *doc_grid_text(const doc_grid *g, size_t row, size_t column)
{
    return column < g->lines[row].cells ? g->lines[row].text[column] : NULL;
}

static void write_block(const document *d, const block *b, const doc_writer *w, const doc_output *to)
{
    switch (b->kind) {
    case HEADING: w->heading(to, b->level, b->texts[0]); break;
    case PARAGRAPH: w->paragraph(to, b->texts[0]); break;
    case BULLETS: w->bullets(to, b->n, b->texts); break;
    case NOTE: w->note(to, b->texts[0]); break;
    case PREFORMATTED: w->preformatted(to, b->texts[0]); break;
    case FIGURE: w->figure(to, b->texts[0], b->texts[1], b->texts[2]); break;
    case FOLD: w->fold(to, b->texts[0]); break;
    case FOLD_END: w->fold_end(to); break;
    case TABLE: w->table(to, &b->grid); break;
    case CONTENTS: w->contents(to, d); break;
    }
}

void doc_write(const document *d, const doc_writer *w, const doc_output *to)
{
    w->begin(to, d, d->title);
    for (size_t i = 0; i < d->n; i++)
        if (d->blocks[i].kind != PARAGRAPH || *d->blocks[i].texts[0]) /* one that nothing was added to is none */
            write_block(d, &d->blocks[i], w, to);
    w->end(to);
}

const char *doc_next_heading(const document *d, size_t *at, int *level)
{
    while (*at < d->n) {
        const block *b = &d->blocks[(*at)++];
        if (b->kind == HEADING || b->kind == FOLD) {
            *level = b->kind == FOLD ? DOC_FOLD_LEVEL : b->level;
            return b->texts[0];
        }
    }
    return NULL;
}

const char *doc_next_figure(const document *d, size_t *at)
{
    while (*at < d->n) {
        const block *b = &d->blocks[(*at)++];
        if (b->kind == FIGURE)
            return b->texts[0];
    }
    return NULL;
}
