/* SPDX-License-Identifier: MIT */
/* The figures of a folder of results; see figures.h. */
#include "plots/report/figures.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/text.h"

void add_figures(document *doc, const char *folder, const char *prefix)
{
    OWNED char *machine = folder ? realpath(folder, NULL) : NULL;
    if (!machine)
        return;
    OWNED char *relative = xasprintf("../../plots/%s", strrchr(machine, '/') + 1),
               *plots = xasprintf("%s/%s", machine, relative);
    struct dirent **entries;
    const int n = scandir(plots, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char *name = entries[i]->d_name, *file = xasprintf("%s/%s", relative, name), *dot = strrchr(name, '.');
        if (text_starts(name, prefix) && dot && strcmp(dot, ".svg") == 0) {
            *dot = '\0';
            doc_figure(doc, file, name);
        }
        free(file);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}
