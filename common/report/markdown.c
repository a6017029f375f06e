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
        case DOC_LINK_URL: fputs("](", out); break;
        case DOC_LINK_END: fputc(')', out); break;
        case '|': fputs(in_table ? "\\|" : "|", out); break;
        case '\n':
        case '\r': fputc(one_line ? ' ' : *text, out); break;
        default: fputc(*text, out);
        }
}

static void heading(FILE *out, int level, const char *text)
{
    for (int i = 0; i < level; i++)
        fputc('#', out);
    fputc(' ', out);
    write_text(out, text, true, false);
    fputs("\n\n", out);
}

static void begin(FILE *out, const document *d, const char *title)
{
    (void)d;
    if (*title)
        heading(out, 1, title);
}

static void paragraph(FILE *out, const char *text)
{
    const size_t length = strlen(text);
    write_text(out, text, false, false);
    fputs(length && text[length - 1] != '\n' ? "\n\n" : "\n", out);
}

static void bullets(FILE *out, size_t n, char *const *texts)
{
    for (size_t i = 0; i < n; i++) {
        fputs("- ", out);
        write_text(out, texts[i], true, false);
        fputc('\n', out);
    }
    fputc('\n', out);
}

static void note(FILE *out, const char *text)
{
    fputs("> ", out);
    write_text(out, text, true, false);
    fputs("\n\n", out);
}

static void preformatted(FILE *out, const char *text)
{
    const size_t length = strlen(text);
    fprintf(out, "```\n%s%s```\n\n", text, length && text[length - 1] == '\n' ? "" : "\n");
}

static void figure(FILE *out, const char *file, const char *alt, const char *caption)
{
    fprintf(out, "![%s](%s)\n\n", alt, file);
    if (*caption)
        paragraph(out, caption);
}

static void fold(FILE *out, const char *summary)
{
    fputs("<details><summary>", out);
    write_text(out, summary, true, false);
    fputs("</summary>\n\n", out);
}

static void fold_end(FILE *out)
{
    fputs("</details>\n\n", out);
}

static void write_cell(FILE *out, const char *text)
{
    if (text) {
        fputc(' ', out);
        write_text(out, text, true, true);
    }
    fputs(" |", out);
}

static void table(FILE *out, const doc_grid *g)
{
    fputc('|', out);
    for (size_t c = 0; c < g->columns; c++)
        write_cell(out, g->names[c]);
    fputs("\n|", out);
    for (size_t c = 0; c < g->columns; c++)
        fputs(g->kinds[c] == DOC_NUMBER ? "---:|" : "---|", out);
    fputc('\n', out);
    for (size_t r = 0; r < g->rows; r++) {
        fputc('|', out);
        for (size_t c = 0; c < g->columns; c++)
            write_cell(out, doc_grid_text(g, r, c));
        fputc('\n', out);
    }
    fputc('\n', out);
}

static void end(FILE *out)
{
    (void)out;
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
