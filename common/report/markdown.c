/* SPDX-License-Identifier: MIT */
/* A document as Markdown with GitHub's tables, and HTML where that has no word of its own: folded detail. */
#include <string.h>

#include "common/report/document.h"

/* A text with its marks as Markdown's. In a cell or a bullet, which is one line, a line break becomes a blank. */
static void write_text(FILE *out, const char *text, bool one_line, bool in_table)
{
    for (; *text; text++)
        switch (*text) {
        case DOC_STRONG:
        case DOC_STRONG_END: fputs("**", out); break;
        case DOC_CODE:
        case DOC_CODE_END: fputc('`', out); break;
        case DOC_LINK: fputc('[', out); break;
        case DOC_LINK_ADDRESS: fputs("](", out); break;
        case DOC_LINK_END: fputc(')', out); break;
        case '|': fputs(in_table ? "\\|" : "|", out); break;
        case '\n':
        case '\r': fputc(one_line ? ' ' : *text, out); break;
        default: fputc(*text, out);
        }
}

static void heading(const doc_output *to, int level, const char *text)
{
    for (int i = 0; i < level; i++)
        fputc('#', to->file);
    fputc(' ', to->file);
    write_text(to->file, text, true, false);
    fputs("\n\n", to->file);
}

static void begin(const doc_output *to, const document *d, const char *title)
{
    (void)d;
    if (*title)
        heading(to, 1, title);
}

static void paragraph(const doc_output *to, const char *text)
{
    const size_t length = strlen(text);
    write_text(to->file, text, false, false);
    fputs(length && text[length - 1] != '\n' ? "\n\n" : "\n", to->file);
}

static void bullets(const doc_output *to, size_t n, char *const *texts)
{
    for (size_t i = 0; i < n; i++) {
        fputs("- ", to->file);
        write_text(to->file, texts[i], true, false);
        fputc('\n', to->file);
    }
    fputc('\n', to->file);
}

static void note(const doc_output *to, const char *text)
{
    fputs("> ", to->file);
    write_text(to->file, text, true, false);
    fputs("\n\n", to->file);
}

static void preformatted(const doc_output *to, const char *text)
{
    const size_t length = strlen(text);
    fprintf(to->file, "```\n%s%s```\n\n", text, length && text[length - 1] == '\n' ? "" : "\n");
}

static void figure(const doc_output *to, const char *file, const char *alt, const char *caption)
{
    fprintf(to->file, "![%s](%s)\n\n", alt, file);
    if (*caption)
        paragraph(to, caption);
}

static void fold(const doc_output *to, const char *summary)
{
    fputs("<details><summary>", to->file);
    write_text(to->file, summary, true, false);
    fputs("</summary>\n\n", to->file);
}

static void fold_end(const doc_output *to)
{
    fputs("</details>\n\n", to->file);
}

static void write_cell(FILE *out, const char *text)
{
    if (text) {
        fputc(' ', out);
        write_text(out, text, true, true);
    }
    fputs(" |", out);
}

static void table(const doc_output *to, const doc_grid *g)
{
    fputc('|', to->file);
    for (size_t c = 0; c < g->columns; c++)
        write_cell(to->file, g->names[c]);
    fputs("\n|", to->file);
    for (size_t c = 0; c < g->columns; c++)
        fputs(g->kinds[c] == DOC_NUMBER ? "---:|" : "---|", to->file);
    fputc('\n', to->file);
    for (size_t r = 0; r < g->rows; r++) {
        fputc('|', to->file);
        for (size_t c = 0; c < g->columns; c++)
            write_cell(to->file, doc_grid_text(g, r, c));
        fputc('\n', to->file);
    }
    fputc('\n', to->file);
}

static void end(const doc_output *to)
{
    (void)to;
}

const doc_writer markdown_writer = {.begin = begin,
                                    .heading = heading,
                                    .paragraph = paragraph,
                                    .bullets = bullets,
                                    .note = note,
                                    .preformatted = preformatted,
                                    .figure = figure,
                                    .fold = fold,
                                    .fold_end = fold_end,
                                    .table = table,
                                    .end = end};
