/* SPDX-License-Identifier: MIT */
/* The blocks of a document in memory, and handing them to a writer; see document.h. */
#include "plots/report/document.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

typedef enum block_kind { HEADING, PARAGRAPH, BULLETS, NOTE, FIGURE, FOLD, FOLD_END, TABLE, CONTENTS } block_kind;

typedef struct block {
    block_kind kind;
    int level;    /* of a heading */
    size_t n;     /* texts */
    char **texts; /* one; of bullets one each; of a figure file and alt */
    doc_grid grid;
} block;

struct document {
    char *title;
    size_t n;
    block *blocks;
    char **open; /* the text begun last, or NULL */
};

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

static void add(document *d, const char *text)
{
    if (!d->open)
        die(EXIT_CODE_FAILURE, "report: '%s' belongs to no text", text);
    const size_t length = *d->open ? strlen(*d->open) : 0, more = strlen(text);
    *d->open = xrealloc(*d->open, length + more + 1);
    memcpy(*d->open + length, text, more + 1);
}

static block *begin_with_text(document *d, block_kind kind, const char *text)
{
    block *b = begin_block(d, kind);
    begin_text(d, &b->texts, &b->n);
    add(d, text);
    return b;
}

void doc_heading(document *d, int level, const char *text)
{
    begin_with_text(d, HEADING, text)->level = level;
}

void doc_paragraph(document *d, const char *text)
{
    begin_with_text(d, PARAGRAPH, text);
}

void doc_bullet(document *d, const char *text)
{
    block *b = d->n && d->blocks[d->n - 1].kind == BULLETS ? &d->blocks[d->n - 1] : begin_block(d, BULLETS);
    begin_text(d, &b->texts, &b->n);
    add(d, text);
}

void doc_note(document *d, const char *text)
{
    begin_with_text(d, NOTE, text);
}

void doc_fold(document *d, const char *summary)
{
    begin_with_text(d, FOLD, summary);
}

void doc_fold_end(document *d)
{
    begin_block(d, FOLD_END);
}

void doc_contents(document *d)
{
    begin_block(d, CONTENTS);
}

void doc_figure(document *d, const char *file, const char *alt)
{
    block *b = begin_with_text(d, FIGURE, file);
    begin_text(d, &b->texts, &b->n);
    add(d, alt);
    d->open = NULL;
}

void doc_more(document *d, const char *text)
{
    add(d, text);
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

void doc_column(document *d, doc_kind kind, const char *name)
{
    doc_grid *g = open_grid(d);
    g->kinds = xrealloc(g->kinds, (g->columns + 1) * sizeof *g->kinds);
    g->kinds[g->columns] = kind;
    begin_text(d, &g->names, &g->columns);
    add(d, name);
}

void doc_row(document *d)
{
    doc_grid *g = open_grid(d);
    g->lines = xrealloc(g->lines, (g->rows + 1) * sizeof *g->lines);
    g->lines[g->rows++] = (doc_line){0, NULL};
    d->open = NULL;
}

void doc_cell(document *d, const char *text)
{
    doc_grid *g = open_grid(d);
    doc_line *line = g->rows ? &g->lines[g->rows - 1] : NULL;
    if (!line || line->cells == g->columns)
        die(EXIT_CODE_FAILURE, "report: a row with more cells than the %zu columns of its table", g->columns);
    begin_text(d, &line->text, &line->cells);
    if (text)
        add(d, text);
    else
        d->open = NULL;
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
    case FIGURE: w->figure(to, b->texts[0], b->texts[1]); break;
    case FOLD: w->fold(to, b->texts[0]); break;
    case FOLD_END: w->fold_end(to); break;
    case TABLE: w->table(to, &b->grid); break;
    case CONTENTS:
        if (w->contents)
            w->contents(to, d);
        break;
    }
}

void doc_write(const document *d, const doc_writer *w, const doc_output *to)
{
    int left_out = 0; /* folds that are open, of a writer without them */
    w->begin(to, d, d->title);
    for (size_t i = 0; i < d->n; i++) {
        const block *b = &d->blocks[i];
        if (!w->fold && (b->kind == FOLD || b->kind == FOLD_END))
            left_out += b->kind == FOLD ? 1 : -1;
        else if (!left_out && (b->kind != PARAGRAPH || *b->texts[0])) /* one that nothing was added to is none */
            write_block(d, b, w, to);
    }
    if (w->end)
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
