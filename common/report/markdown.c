/* SPDX-License-Identifier: MIT */
/* A document as Markdown with GitHub's tables. What is folded is left out: the page in HTML has it, and so a link to a heading is
 * plain text here. What a text holds is never markup: a value may come from anybody's file. */
#include <ctype.h>
#include <string.h>

#include "common/report/document.h"

static int folded; /* how many folds are open; nothing is written inside */

/* Whether Markdown would read a character as its own; before is the one in front of it. */
static bool is_markup(const char *at, char before)
{
    switch (*at) {
    case '*':
    case '`':
    case '\\': return true;
    case '_': return !isalnum((unsigned char)before) || !isalnum((unsigned char)at[1]);
    case ']': return at[1] == '(' || at[1] == '[' || at[1] == ':';
    default: return false;
    }
}

/* The text up to its end mark, or a link's whole; at is left on the end. */
static void write_text(FILE *out, const char *text, bool in_table)
{
    bool heading = false, code = false;
    char before = ' ';
    if (strchr("#>+-=", *text) && *text && !in_table)
        fputc('\\', out); /* the beginning of a line: no heading, no list */
    for (; *text; before = *text++)
        switch (*text) {
        case DOC_STRONG:
        case DOC_STRONG_END: fputs("**", out); break;
        case DOC_CODE:
        case DOC_CODE_END:
            fputc('`', out);
            code = *text == DOC_CODE;
            break;
        case DOC_LINK: {
            const char *address = strchr(text, DOC_LINK_ADDRESS);
            heading = address && address[1] == '#';
            fputs(heading ? "" : "[", out);
            break;
        }
        case DOC_LINK_ADDRESS:
            if (heading)
                text += strcspn(text, "\a") - 1; /* DOC_LINK_END */
            else
                fputs("](", out);
            break;
        case DOC_LINK_END: fputs(heading ? "" : ")", out); break;
        case '|': fputs(in_table ? "\\|" : "|", out); break;
        case '<': fputs(code ? "<" : "&lt;", out); break;
        case '\n':
        case '\r': fputc(' ', out); break;
        default:
            if (code && *text == '`')
                fputc('\'', out);
            else
                fprintf(out, "%s%c", !code && is_markup(text, before) ? "\\" : "", *text);
        }
}

_Static_assert(DOC_LINK_END == '\a', "the end of a link is what strcspn looks for");

static void heading(const doc_output *to, int level, const char *text)
{
    if (folded)
        return;
    for (int i = 0; i < level; i++)
        fputc('#', to->file);
    fputc(' ', to->file);
    write_text(to->file, text, true);
    fputs("\n\n", to->file);
}

static void begin(const doc_output *to, const document *d, const char *title)
{
    (void)d;
    folded = 0;
    if (*title)
        heading(to, 1, title);
}

static void paragraph(const doc_output *to, const char *text)
{
    if (folded)
        return;
    write_text(to->file, text, false);
    fputs("\n\n", to->file);
}

static void bullets(const doc_output *to, size_t n, char *const *texts)
{
    for (size_t i = 0; i < n && !folded; i++) {
        fputs("- ", to->file);
        write_text(to->file, texts[i], false);
        fputc('\n', to->file);
    }
    fputs(folded ? "" : "\n", to->file);
}

static void note(const doc_output *to, const char *text)
{
    if (folded)
        return;
    fputs("> ", to->file);
    write_text(to->file, text, false);
    fputs("\n\n", to->file);
}

static void figure(const doc_output *to, const char *file, const char *alt)
{
    if (!folded)
        fprintf(to->file, "![%s](%s)\n\n", alt, file);
}

static void fold(const doc_output *to, const char *summary)
{
    (void)to, (void)summary;
    folded++;
}

static void fold_end(const doc_output *to)
{
    (void)to;
    folded--;
}

static void write_cell(FILE *out, const char *text)
{
    if (text && *text) {
        fputc(' ', out);
        write_text(out, text, true);
    }
    fputs(" |", out);
}

static void table(const doc_output *to, const doc_grid *g)
{
    if (folded)
        return;
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

static void contents(const doc_output *to, const document *d)
{
    (void)to, (void)d;
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
                                    .figure = figure,
                                    .fold = fold,
                                    .fold_end = fold_end,
                                    .table = table,
                                    .contents = contents,
                                    .end = end};
