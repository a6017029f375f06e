/* SPDX-License-Identifier: MIT */
/* Text with SQL in it; see template.h. */
#include "plots/report/template.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <string.h>

#include "plots/report/document.h"

/* The } that ends what begins behind {: neither one in quotes nor that of a pair inside. NULL: there is none. */
static const char *brace_end(const char *at)
{
    int depth = 1;
    for (bool quoted = false; *at; at++) {
        quoted = quoted != (*at == '\'');
        depth += quoted ? 0 : (*at == '{') - (*at == '}');
        if (!depth)
            return at;
    }
    return NULL;
}

/* Up to what is special here; as a literal of SQL, with marks for strong and code. */
static const char *add_literal(sqlite3_str *to, const char *at, bool *strong, bool *coded)
{
    sqlite3_str_appendchar(to, 1, '\'');
    for (; *at && *at != '{' && strncmp(at, "[[", 2) != 0 && strncmp(at, "]]", 2) != 0; at++)
        if (strncmp(at, "**", 2) == 0) {
            sqlite3_str_appendchar(to, 1, *strong ? DOC_STRONG_END : DOC_STRONG);
            *strong = !*strong;
            at++;
        } else if (*at == '`') {
            sqlite3_str_appendchar(to, 1, *coded ? DOC_CODE_END : DOC_CODE);
            *coded = !*coded;
        } else {
            sqlite3_str_appendchar(to, *at == '\'' ? 2 : 1, *at == '\n' ? ' ' : *at);
        }
    sqlite3_str_appendchar(to, 1, '\'');
    return at;
}

char *template_sql(const char *text)
{
    sqlite3_str *to = sqlite3_str_new(NULL);
    bool strong = false, coded = false, optional = false, closed = true;
    while (*text && closed) {
        const char *before = sqlite3_str_length(to) ? " || " : "";
        if (strncmp(text, "[[", 2) == 0) {
            sqlite3_str_appendf(to, "%scoalesce(''", before);
            optional = true;
            text += 2;
        } else if (optional && strncmp(text, "]]", 2) == 0) {
            sqlite3_str_appendall(to, ", '')");
            optional = false;
            text += 2;
        } else if (*text == '{') {
            const char *end = brace_end(text + 1);
            closed = end;
            const int length = end ? (int)(end - text - 1) : 0;
            sqlite3_str_appendf(to, optional ? "%sshow(%.*s)" : "%scoalesce(show(%.*s), '-')", before, length,
                                text + 1);
            text = end ? end + 1 : text;
        } else {
            sqlite3_str_appendall(to, before);
            const char *from = text;
            text = add_literal(to, text, &strong, &coded);
            closed = text > from;
        }
    }
    char *sql = sqlite3_str_finish(to);
    if (closed && !optional && !strong && !coded)
        return sql ? sql : sqlite3_mprintf("''");
    sqlite3_free(sql);
    return NULL;
}
