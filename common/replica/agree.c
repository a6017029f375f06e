/* SPDX-License-Identifier: MIT */
/* One answer of all ranks to whether something worked, with a reason where it did not; see replica.h. */
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
    opinion mine = {.ok = ok};
    mine.no_memory = !ok && memory_failed(at->mem, &asked, &tag);
    if (mine.no_memory)
        snprintf(mine.why, sizeof mine.why, "%s needs %zu bytes", tag, asked);
    else if (!ok)
        snprintf(mine.why, sizeof mine.why, "%s", why);
    OWNED opinion *gathered = at->l ? launch_gathered(at->l, name, &mine, sizeof mine) : NULL;
    const opinion *all = gathered ? gathered : &mine;
    int r = 0;
    while (r < n && all[r].ok)
        r++;
    if (r < n) {
        problem->no_memory = all[r].no_memory;
        snprintf(problem->text, sizeof problem->text, "rank %d: %s", r, all[r].why);
    }
    return r == n;
}

typedef struct row_opinion {
    row_status status;
    int wrong;
    char why[400];
} row_opinion;

static row_opinion row_opinion_of(const replica_place *at, const row *w, int wrong)
{
    size_t asked;
    const char *tag;
    row_opinion mine = {row_status_get(w), wrong, ""};
    snprintf(mine.why, sizeof mine.why, "%s", row_reason(w));
    if (memory_failed(at->mem, &asked, &tag)) {
        mine.status = ROW_OOM;
        snprintf(mine.why, sizeof mine.why, "rank %d has no memory for %s (%zu bytes)", launch_rank(at->l), tag, asked);
    }
    return mine;
}

bool replica_agree_row(const replica_place *at, const char *name, row *w, int members, int wrong)
{
    const row_opinion mine = row_opinion_of(at, w, wrong);
    OWNED row_opinion *all = launch_gathered(at->l, name, &mine, sizeof mine);
    row_opinion *bad = NULL;
    for (int r = 0; r < members; r++)
        if (all[r].status != ROW_OK && (!bad || all[r].wrong < bad->wrong))
            bad = &all[r];
    if (bad)
        row_status_set(w, bad->status, "%s", bad->why);
    return !bad;
}
