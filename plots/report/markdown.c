/* SPDX-License-Identifier: MIT */
/* A document as Markdown with GitHub's tables. What is folded is left out: the page in HTML has it, and so a link to a heading is
 * plain text here. What a text holds is never markup: a value may come from anybody's file. */
#include <ctype.h>
#include <string.h>

#include "plots/report/document.h"

static bool is_entity(const char *at)
{
    const size_t name = 1 + strspn(at + 1, "#0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    return name > 1 && at[name] == ';';
}

/* Whether GitHub takes the character for markup where it stands. `begins`: nothing but digits, if anything, is before it on its
 * line. */
static bool is_markup(const char *at, char before, bool begins)
{
    const char next = at[1];
    switch (*at) {
    case '`':
    case '$': return true;
    case '\\': return ispunct((unsigned char)next);
    case '*':
    case '~': return begins || before != ' ' || next != ' ';
    case '_': return !isalnum((unsigned char)before) || !isalnum((unsigned char)next);
    case ']': return next && strchr("([:", next);
    case '.':
    case ')': return begins && isdigit((unsigned char)before) && (next == ' ' || !next);
    case '[':
    case '#':
    case '>':
    case '+':
    case '=':
    case '|':
    case ':':
    case '-': return begins && !isdigit((unsigned char)before);
    default: return false;
    }
}

/* What a text of words and cells holds is shown, not obeyed. */
static void write_shown(FILE *out, const char *at, char before, bool begins)
{
    if (*at == '<' && (isalpha((unsigned char)at[1]) || (at[1] && strchr("/!?", at[1]))))
        fputs("&lt;", out);
    else if (*at == '&' && is_entity(at))
        fputs("&amp;", out);
    else
        fprintf(out, "%s%c", is_markup(at, before, begins) ? "\\" : "", *at);
}

/* In an address a few characters would end it. */
static void write_address(FILE *out, char c)
{
    fprintf(out, strchr(" ()<>\"\\", c) ? "%%%02X" : "%c", (unsigned char)c);
}

/* A text with its marks as Markdown's, on one line. */
static void write_text(FILE *out, const char *text, bool in_table)
{
    enum { SHOWN, CODE, ADDRESS } as = SHOWN;
    bool heading = false, begins = !in_table;
    for (char before = ' '; *text; before = *text++) {
        const bool still = begins && isdigit((unsigned char)*text);
        switch (*text) {
        case DOC_STRONG:
        case DOC_STRONG_END: fputs("**", out); break;
        case DOC_CODE:
        case DOC_CODE_END:
            fputc('`', out);
            as = *text == DOC_CODE ? CODE : SHOWN;
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
            as = heading ? SHOWN : ADDRESS;
            break;
        case DOC_LINK_END:
            fputs(heading ? "" : ")", out);
            as = SHOWN;
            break;
        case '\n':
        case '\r': fputc(' ', out); break;
        default:
            if (in_table && *text == '|')
                fputs("\\|", out);
            else if (as == ADDRESS)
                write_address(out, *text);
            else if (as == CODE)
                fputc(*text == '`' ? '\'' : *text, out); /* which has no escape */
            else
                write_shown(out, text, before, begins);
        }
        begins = still;
    }
}

_Static_assert(DOC_LINK_END == '\a', "the end of a link is what strcspn looks for");

static void heading(const doc_output *to, int level, const char *text)
{
    for (int i = 0; i < level; i++)
        fputc('#', to->file);
    fputc(' ', to->file);
    write_text(to->file, text, true);
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
    write_text(to->file, text, false);
    fputs("\n\n", to->file);
}

static void bullets(const doc_output *to, size_t n, char *const *texts)
{
    for (size_t i = 0; i < n; i++) {
        fputs("- ", to->file);
        write_text(to->file, texts[i], false);
        fputc('\n', to->file);
    }
    fputc('\n', to->file);
}

static void note(const doc_output *to, const char *text)
{
    fputs("> ", to->file);
    write_text(to->file, text, false);
    fputs("\n\n", to->file);
}

static void figure(const doc_output *to, const char *file, const char *alt)
{
    fputs("![", to->file);
    write_text(to->file, alt, false);
    fputs("](", to->file);
    for (; *file; file++)
        write_address(to->file, *file);
    fputs(")\n\n", to->file);
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

const doc_writer markdown_writer = {.begin = begin,
                                    .heading = heading,
                                    .paragraph = paragraph,
                                    .bullets = bullets,
                                    .note = note,
                                    .figure = figure,
                                    .table = table};
