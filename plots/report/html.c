/* SPDX-License-Identifier: MIT */
/* A document as one HTML page that needs nothing else: style, script and figures are in it, and its policy forbids any
 * fetch. It reads without script and style, too; the script only sorts tables. Figures are gnuplot's SVG: what gnuplot
 * defines in each of them is written once, and colours are turned around in dark mode. */
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "plots/report/document.h"
#include "plots/report/embedded.h"

/* ---- text ---- */

static void escaped(FILE *out, char c)
{
    switch (c) {
    case '&': fputs("&amp;", out); break;
    case '<': fputs("&lt;", out); break;
    case '>': fputs("&gt;", out); break;
    case '"': fputs("&quot;", out); break;
    default: fputc(c, out);
    }
}

static void plain(FILE *out, const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text >= ' ' || *text == '\n' || *text == '\t')
            escaped(out, *text);
}

/* A link's address stands behind what it shows. One with a scheme of its own other than the web's is no link. */
static const char *address_of(const char *shown, size_t *length)
{
    const char *begin = strchr(shown, DOC_LINK_ADDRESS);
    if (!begin)
        return NULL;
    *length = strcspn(++begin, "\a"); /* DOC_LINK_END */
    const size_t scheme = strcspn(begin, ":/?#");
    const bool web = strncmp(begin, "https://", 8) == 0 || strncmp(begin, "http://", 7) == 0;
    return scheme < *length && begin[scheme] == ':' && !web ? NULL : begin;
}

static void write_text(FILE *out, const char *text)
{
    bool linked = false;
    for (; *text; text++)
        switch (*text) {
        case DOC_STRONG: fputs("<strong>", out); break;
        case DOC_STRONG_END: fputs("</strong>", out); break;
        case DOC_CODE: fputs("<code>", out); break;
        case DOC_CODE_END: fputs("</code>", out); break;
        case DOC_LINK: {
            size_t length;
            const char *address = address_of(text, &length);
            if ((linked = address)) {
                fputs("<a href=\"", out);
                for (size_t i = 0; i < length; i++)
                    escaped(out, address[i]);
                fputs("\">", out);
            }
            break;
        }
        case DOC_LINK_ADDRESS: text += strcspn(text, "\a") - 1; break;
        case DOC_LINK_END: fputs(linked ? "</a>" : "", out); break;
        default:
            if ((unsigned char)*text >= ' ' || *text == '\n' || *text == '\t')
                escaped(out, *text);
        }
}

_Static_assert(DOC_LINK_END == '\a', "the end of a link is what strcspn looks for");

/* Headings of sections and of their parts have a name to link to; of several that read alike the first. */
typedef struct names {
    char **id;
    size_t n;
} names;
static names given;

static void names_clear(void)
{
    for (size_t i = 0; i < given.n; i++)
        free(given.id[i]);
    free(given.id);
    given = (names){0};
}

static void write_new_id(FILE *out, const char *heading)
{
    char *id = heading_id(heading);
    for (size_t i = 0; i < given.n; i++)
        if (strcmp(given.id[i], id) == 0) {
            free(id);
            return;
        }
    fprintf(out, " id=\"%s\"", id);
    given.id = xrealloc(given.id, (given.n + 1) * sizeof *given.id);
    given.id[given.n++] = id;
}

/* ---- figures ---- */

/* Cuts the first element that begins with `open` and ends with `close`; gives it, or NULL. Caller frees. */
static char *cut(char *text, const char *open, const char *close)
{
    char *begin = strstr(text, open), *end = begin ? strstr(begin + strlen(open), close) : NULL;
    if (!end)
        return NULL;
    end += strlen(close);
    char *taken = xasprintf("%.*s", (int)(end - begin), begin);
    memmove(begin, end, strlen(end) + 1);
    return taken;
}

/* gnuplot names every plot and its shapes alike in all files; of the names only those of shapes are used. */
static void cut_names(char *text)
{
    char *taken;
    while ((taken = cut(text, "<title>", "</title>")) || (taken = cut(text, "<desc>", "</desc>")) ||
           (taken = cut(text, " id=\"gnuplot", "\"")))
        free(taken);
    free(cut(text, "<rect x=\"0\" y=\"0\"", "/>")); /* the background */
}

/* Blanks between tags and the two of "rgb( 85,  85" say nothing. */
static void write_tight(FILE *out, const char *text)
{
    for (; *text; text++) {
        const size_t blanks = strspn(text, " \t\r\n");
        if (blanks > 1) {
            fputc(memchr(text, '\n', blanks) ? '\n' : ' ', out);
            text += blanks - 1;
        } else
            fputc(*text, out);
    }
}

static char *figure_text(const doc_output *to, const char *file)
{
    size_t bytes;
    OWNED char *path = xasprintf("%s/%s", to->folder, file);
    char *text = file_read(path, &bytes);
    if (text && (!strstr(text, "<svg") || !strstr(text, "</svg>") || strstr(text, "<script"))) {
        free(text);
        return NULL;
    }
    return text;
}

static void figure(const doc_output *to, const char *file, const char *alt)
{
    OWNED char *text = figure_text(to, file);
    fputs("<figure>", to->file);
    if (text) {
        char *svg = strstr(text, "<svg"), *view = strstr(svg, "viewBox=\""), *inside = strchr(svg, '>');
        free(cut(svg, "<defs>", "</defs>"));
        cut_names(svg);
        fputs("<div class=\"figure\"><svg role=\"img\" aria-label=\"", to->file);
        plain(to->file, alt);
        if (view && view < inside)
            fprintf(to->file, "\" viewBox=\"%.*s", (int)strcspn(view + 9, "\""), view + 9);
        fputs("\">", to->file);
        write_tight(to->file, inside + 1);
        fputs("</div>", to->file);
    } else {
        fputs("<p>", to->file);
        plain(to->file, alt);
        fputs(": ", to->file);
        plain(to->file, file);
        fputs("</p>", to->file);
    }
    fputs("</figure>\n", to->file);
}

/* The shapes of points, from the first figure that has them, for all. */
static void shapes(const doc_output *to, const document *d)
{
    size_t at = 0;
    for (const char *file; (file = doc_next_figure(d, &at));) {
        OWNED char *text = figure_text(to, file), *defs = text ? cut(text, "<defs>", "</defs>") : NULL;
        if (!defs)
            continue;
        fputs("<svg width=\"0\" height=\"0\" style=\"position:absolute\" aria-hidden=\"true\">", to->file);
        write_tight(to->file, defs);
        fputs("</svg>\n", to->file);
        return;
    }
}

/* ---- blocks ---- */

static void contents(const doc_output *to, const document *d)
{
    fputs("<nav aria-label=\"Contents\"><details><summary>Contents</summary><ul>\n", to->file);
    size_t at = 0;
    int level;
    for (const char *text; (text = doc_next_heading(d, &at, &level));)
        if (level == 2) {
            OWNED char *id = heading_id(text);
            fprintf(to->file, "<li><a href=\"#%s\">", id);
            write_text(to->file, text);
            fputs("</a></li>\n", to->file);
        }
    fputs("</ul></details></nav>\n", to->file);
}

static void begin(const doc_output *to, const document *d, const char *title)
{
    names_clear();
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
          "script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
          to->file);
    plain(to->file, title);
    fprintf(to->file, "</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n%s</style>\n</head>\n<body>\n",
            embedded_text("style.css"));
    shapes(to, d);
    if (*title) {
        fputs("<h1>", to->file);
        plain(to->file, title);
        fputs("</h1>\n", to->file);
    }
    fputs("<main>\n", to->file);
}

static void heading(const doc_output *to, int level, const char *text)
{
    level = level < 1 ? 1 : level > 6 ? 6 : level;
    fprintf(to->file, "<h%d", level);
    if (level == 2 || level == 3)
        write_new_id(to->file, text);
    fputc('>', to->file);
    write_text(to->file, text);
    fprintf(to->file, "</h%d>\n", level);
}

static void element(const doc_output *to, const char *name, const char *text)
{
    fprintf(to->file, "<%s>", name);
    write_text(to->file, text);
    fprintf(to->file, "</%s>\n", name);
}

static void paragraph(const doc_output *to, const char *text)
{
    element(to, "p", text);
}

static void bullets(const doc_output *to, size_t n, char *const *texts)
{
    fputs("<ul>\n", to->file);
    for (size_t i = 0; i < n; i++)
        element(to, "li", texts[i]);
    fputs("</ul>\n", to->file);
}

static void note(const doc_output *to, const char *text)
{
    fputs("<blockquote>", to->file);
    element(to, "p", text);
    fputs("</blockquote>\n", to->file);
}

static void fold(const doc_output *to, const char *summary)
{
    fputs("<details>", to->file);
    element(to, "summary", summary);
    fputs("<span", to->file);
    write_new_id(to->file, summary);
    fputs("></span>\n", to->file);
}

static void fold_end(const doc_output *to)
{
    fputs("</details>\n", to->file);
}

/* What a number is sorted by where its text does not begin with it, or has a unit behind it: "64 KiB". */
static void write_value(FILE *out, const char *text)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}};
    char *end;
    const double value = strtod(text, &end);
    if (end == text)
        return;
    for (size_t i = 0; *end == ' ' && i < sizeof units / sizeof *units; i++)
        if (strcmp(end + 1, units[i].unit) == 0)
            fprintf(out, " data-v=\"%.9g\"", value * units[i].factor);
}

static void cell(FILE *out, const char *text, doc_kind kind)
{
    enum { LONG_NUMBER = 48, LONG_TEXT = 28 }; /* characters; a cell of more is broken into lines */
    const bool is_number = kind == DOC_NUMBER;
    const bool is_long = text && strlen(text) > (is_number ? LONG_NUMBER : LONG_TEXT);
    fputs("<td", out);
    if (is_long || is_number)
        fprintf(out, " class=\"%s%s%s\"", is_number ? "n" : "", is_long && is_number ? " " : "", is_long ? "long" : "");
    if (text && is_number)
        write_value(out, text);
    fputc('>', out);
    write_text(out, text ? text : "");
    fputs("</td>", out);
}

static void table(const doc_output *to, const doc_grid *g)
{
    fputs("<div class=\"wide\"><table>\n<thead><tr>", to->file);
    for (size_t c = 0; c < g->columns; c++) {
        fprintf(to->file, "<th scope=\"col\"%s>", g->kinds[c] == DOC_NUMBER ? " class=\"n\"" : "");
        write_text(to->file, g->names[c]);
        fputs("</th>", to->file);
    }
    fputs("</tr></thead>\n<tbody>\n", to->file);
    for (size_t r = 0; r < g->rows; r++) {
        fputs("<tr>", to->file);
        for (size_t c = 0; c < g->columns; c++)
            cell(to->file, doc_grid_text(g, r, c), g->kinds[c]);
        fputs("</tr>\n", to->file);
    }
    fputs("</tbody></table></div>\n", to->file);
}

static void end(const doc_output *to)
{
    fprintf(to->file, "</main>\n<script>\n%s</script>\n</body>\n</html>\n", embedded_text("script.js"));
}

const doc_writer html_writer = {.begin = begin,
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
