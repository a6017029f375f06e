/* SPDX-License-Identifier: MIT */
/* One answer of all ranks to whether something worked, with the reason of the first where it did not; see replica.h. */
#include <stdio.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/replica/replica.h"

typedef struct opinion {
    bool ok, no_memory;
    char why[400];
} opinion;

bool replica_agree(const replica_place *at, const char *name, bool ok, const char *why, replica_problem *problem)
{
    size_t asked = 0;
    const char *tag = "";
    const int n = at->l ? launch_size(at->l) : 1;
    opinion mine = {.ok = ok}, *all = xcalloc((unsigned long)n, sizeof *all);
    mine.no_memory = !ok && memory_failed(at->mem, &asked, &tag);
    if (mine.no_memory)
        snprintf(mine.why, sizeof mine.why, "%s needs %zu bytes", tag, asked);
    else if (!ok)
        snprintf(mine.why, sizeof mine.why, "%s", why);
    if (at->l)
        launch_gather(at->l, name, &mine, sizeof mine, all);
    else
        all[0] = mine;
    int r = 0;
    while (r < n && all[r].ok)
        r++;
    if (r < n) {
        problem->no_memory = all[r].no_memory;
        snprintf(problem->text, sizeof problem->text, "rank %d: %s", r, all[r].why);
    }
    free(all);
    return r == n;
}
