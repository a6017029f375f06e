/* SPDX-License-Identifier: MIT */
/* A document as a list of headings, paragraphs, bullets, tables and figures. Sections add to it from top to bottom;
 * a writer gives it a form: Markdown or HTML. Texts are copied. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The name of a heading in addresses, as GitHub forms it: "bench_flash: time" is bench_flash-time. Caller frees. */
char *heading_id(const char *heading);

typedef struct document document;
document *doc_create(const char *title); /* "": a part, or text for another file */
void doc_free(document *d);
bool doc_empty(const document *d);            /* nothing but the title */
void doc_append(document *d, document *part); /* moves all of part behind what d has, and frees part */

/* Each begins a block, which ends the one before it. A line break in a text is a blank to the reader. A paragraph that is
 * empty in the end is left out. */
void doc_heading(document *d, int level, const char *text); /* level 2 is a section's */
void doc_paragraph(document *d, const char *text);
void doc_bullet(document *d, const char *text);  /* neighbours are one list */
void doc_note(document *d, const char *text);    /* an aside */
void doc_fold(document *d, const char *summary); /* detail under a summary, up to doc_fold_end */
void doc_fold_end(document *d);
void doc_contents(document *d); /* links to the sections, of a writer that has links */
void doc_figure(document *d, const char *file,
                const char *alt); /* an SVG; its path starts from the document's folder */

/* A table: its columns, then rows of cells. A row may have fewer cells than there are columns, not more. The kind of a
 * column says how its cells are aligned and sorted. */
typedef enum doc_kind { DOC_TEXT, DOC_NUMBER } doc_kind;
void doc_table(document *d);
void doc_column(document *d, doc_kind kind, const char *name);
void doc_row(document *d);
void doc_cell(document *d, const char *text); /* NULL: it does not apply */

/* Adds to the text that was begun last: of a heading, paragraph, bullet, note, summary, column or cell. */
void doc_more(document *d, const char *text);

/* What marks are in a text: a writer puts its own markup in their place. The address of a link starts from the document's
 * folder. */
enum doc_mark {
    DOC_STRONG = 1,
    DOC_STRONG_END,
    DOC_CODE,
    DOC_CODE_END,
    DOC_LINK,
    DOC_LINK_ADDRESS, /* between a link's text and its address */
    DOC_LINK_END
};

/* ---- for writers ---- */

typedef struct doc_line {
    size_t cells;
    char **text; /* [cells], NULL for a blank one */
} doc_line;
typedef struct doc_grid {
    size_t columns, rows;
    doc_kind *kinds; /* [columns] */
    char **names;    /* [columns] */
    doc_line *lines; /* [rows] */
} doc_grid;
const char *doc_grid_text(const doc_grid *g, size_t row, size_t column); /* NULL for a blank cell */

/* Where a writer writes. */
typedef struct doc_output {
    FILE *file;
    const char *folder; /* the document's, to read figures from */
} doc_output;

/* Gets the blocks in their order. One without `fold` gets nothing that is folded; `contents` and `end` may be NULL, too.
 * `begin` may look ahead: doc_next_heading gives what a list of contents needs. */
typedef struct doc_writer {
    void (*begin)(const doc_output *to, const document *d, const char *title);
    void (*heading)(const doc_output *to, int level, const char *text);
    void (*paragraph)(const doc_output *to, const char *text);
    void (*bullets)(const doc_output *to, size_t n, char *const *texts);
    void (*note)(const doc_output *to, const char *text);
    void (*figure)(const doc_output *to, const char *file, const char *alt);
    void (*fold)(const doc_output *to, const char *summary);
    void (*fold_end)(const doc_output *to);
    void (*table)(const doc_output *to, const doc_grid *g);
    void (*contents)(const doc_output *to, const document *d);
    void (*end)(const doc_output *to);
} doc_writer;
extern const doc_writer markdown_writer, html_writer;

void doc_write(const document *d, const doc_writer *w, const doc_output *to);
enum { DOC_FOLD_LEVEL = 2 };
/* The text and level of the next heading or fold from block *at on, which moves behind it; NULL behind the last one. */
const char *doc_next_heading(const document *d, size_t *at, int *level);
const char *doc_next_figure(const document *d, size_t *at); /* likewise, the file of the next figure */
