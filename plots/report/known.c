/* SPDX-License-Identifier: MIT */
/* What the program was built with: its texts, and the columns that it knows. */
#include <string.h>

#include "common/core/error.h"
#include "plots/report/db.h"
#include "plots/report/embedded.h"

const char *embedded_text(const char *name)
{
    for (const embedded *e = embedded_files; e->name; e++)
        if (strcmp(e->name, name) == 0)
            return e->text;
    return NULL;
}

/* Lines of schema.tsv: table, path, column, kind, place, default. */
const known_column *known_columns(size_t *count)
{
    static known_column *all;
    static size_t n;
    char *text = all ? NULL : xstrdup(embedded_text("schema.tsv")), *rest = text;
    for (char *line; rest && (line = strsep(&rest, "\n"));) {
        char *cell[6];
        size_t cells = 0;
        while (cells < 6 && (cell[cells] = strsep(&line, "\t")))
            cells++;
        if (cells < 6)
            continue;
        all = xrealloc(all, (n + 1) * sizeof *all);
        all[n++] = (known_column){cell[0], cell[1], cell[2], *cell[3], *cell[4], cell[5]};
    }
    *count = n;
    return all; /* the text stays: names point into it */
}
