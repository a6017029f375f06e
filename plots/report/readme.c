/* SPDX-License-Identifier: MIT */
/* The README's tables, between their markers: sections/readme_<name>.sql of several folders. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "plots/report/engine.h"
#include "plots/report/machines.h"

static char *text_of(sqlite3 *db, const char *file)
{
    char *text;
    size_t bytes;
    FILE *out = text_stream(&text, &bytes);
    document *doc = doc_create("");
    page_use(&(page){.db = db, .folder = NULL, .doc = doc}, file);
    doc_write(doc, &markdown_writer, &(doc_output){.file = out, .folder = "."});
    doc_free(doc);
    fclose(out);
    while (bytes > 1 && text[bytes - 1] == '\n' && text[bytes - 2] == '\n') /* the marker stands right below */
        text[--bytes] = '\0';
    return text;
}

/* The text of `readme` with what stands between the marks of `name` replaced; NULL after a message where it has none. */
static char *replaced(const char *readme, const char *text, const char *name, const char *with)
{
    char *begin = xasprintf("<!-- begin %s -->\n", name), *end = xasprintf("<!-- end %s -->", name), *done = NULL;
    const char *first = strstr(text, begin), *last = first ? strstr(first, end) : NULL;
    if (last)
        done = xasprintf("%.*s%s%s", (int)(first - text + (long)strlen(begin)), text, with, last);
    else
        warn("%s has no lines '<!-- begin %s -->' and '%s'", readme, name, end);
    free(begin);
    free(end);
    return done;
}

static bool write_text(const char *path, const char *text)
{
    OWNED char *partial = xasprintf("%s.partial", path);
    FILE *out = fopen(partial, "w");
    bool done = out && fputs(text, out) >= 0;
    done = out && fclose(out) == 0 && done && rename(partial, path) == 0;
    if (!done)
        warn("%s: %s", path, strerror(errno));
    return done;
}

int readme_update(const machine_folder *folders, size_t n, const char *readme)
{
    size_t bytes;
    sqlite3 *db = machines_open(folders, n);
    OWNED char *table = text_of(db, "readme_table.sql"), *peers = text_of(db, "readme_peers.sql"),
               *text = file_read(readme, &bytes);
    OWNED char *once = text && *table ? replaced(readme, text, "table", table) : NULL,
               *twice = once ? replaced(readme, once, "peers", peers) : NULL;
    if (!*table)
        warn("'%s'%s no row of a fixed case", folders[0].dir, n > 1 ? " and the others have" : " has");
    else if (!text)
        warn("%s: %s", readme, strerror(errno));
    sqlite3_close(db);
    return !twice ? EXIT_CODE_USAGE : write_text(readme, twice) ? EXIT_CODE_OK : EXIT_CODE_FAILURE;
}
