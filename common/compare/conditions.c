/* SPDX-License-Identifier: MIT */
/* The conditions under which a row was measured: columns of the row, and lines of its run in machine.csv. */
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/compare/internal.h"

static bool in_list(const char *list, const char *word, size_t length)
{
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && strncmp(at, word, length) == 0)
            return true;
    return false;
}

bool compare_is_condition(const char *word, size_t length)
{
    return in_list(COMPARE_CONDITIONS, word, length);
}

/* The word for a column of rows or a key of machine.csv; NULL when it is no condition. NCCL_VERSION comes with the image
 * of a container; nccl_library is what ran. NCCL_TESTS is where peers find nccl-tests. */
static const char *word_of(const char *name)
{
    const bool nccl = strcmp(name, "nccl_library") == 0 || strncmp(name, "NCCL_", 5) == 0;
    const char *word = strncmp(name, "timer", 5) == 0 ? "timer" : nccl ? "nccl" : name;
    const bool no_setting = strcmp(name, "NCCL_VERSION") == 0 || strcmp(name, "NCCL_TESTS") == 0;
    return !no_setting && compare_is_condition(word, strlen(word)) ? word : NULL;
}

/* ---- two rows ---- */

typedef struct two_rows {
    const side *a, *b;
    size_t row_a, row_b;
    const char *across;
    bool nccl; /* both used it */
} two_rows;

static bool uses_nccl(const side *s, size_t row)
{
    return strncmp(side_cell(s, row, "backend"), "nccl", 4) == 0;
}

static bool across(const two_rows *t, const char *word)
{
    return in_list(t->across, word, strlen(word));
}

static char *differ(const char *name, const char *a, const char *b)
{
    return strcmp(a, b) == 0 ? NULL : xasprintf("%s: %s in A, %s in B", name, *a ? a : "none", *b ? b : "none");
}

/* A case that did not go well ended before it had its timer or backend; a run without lines in machine.csv does not say its
 * device, of which the GPU's name says as much. */
static bool unknown(const side *s, size_t row, const char *name)
{
    const char *cell = side_cell(s, row, name);
    if (strcmp(name, "device") == 0 && !*cell)
        return true;
    return strcmp(side_cell(s, row, "status"), "ok") != 0 && (!*cell || strcmp(cell, "nan") == 0);
}

/* Columns of the rows. One that a side lacks says nothing. */
static char *columns_differ(const two_rows *t)
{
    const csv *a = t->a->file, *b = t->b->file;
    char *why = NULL;
    for (size_t c = 0; c < a->columns && !why; c++) {
        const char *name = a->header[c], *word = word_of(name);
        if (!word || csv_column(b, name) < 0 || across(t, word))
            continue;
        if (strcmp(word, "backend") == 0 && t->nccl && across(t, "nccl")) /* two versions of it */
            continue;
        if (unknown(t->a, t->row_a, name) || unknown(t->b, t->row_b, name))
            continue;
        why = differ(name, side_cell(t->a, t->row_a, name), side_cell(t->b, t->row_b, name));
    }
    return why;
}

/* What machine.csv says of the run of `row` of `s`, one of the two, that differs from the other; or NULL. */
static char *run_differs(const two_rows *t, const side *s, size_t row)
{
    const char *run = side_cell(s, row, "run_id");
    char *why = NULL;
    for (size_t i = 0; i < s->machine->rows && !why; i++) {
        const char *id = csv_cell(s->machine, i, "run_id"), *key = csv_cell(s->machine, i, "key");
        const char *word = strcmp(id, run) == 0 ? word_of(key) : NULL;
        if (word && !across(t, word) && (t->nccl || strcmp(word, "nccl") != 0))
            why = differ(key, side_machine(t->a, t->row_a, key), side_machine(t->b, t->row_b, key));
    }
    return why;
}

/* Lines of either run, since the other one may lack them. Where a run is not known, nothing is. */
static char *software_differs(const two_rows *t)
{
    if (!*side_machine(t->a, t->row_a, "bench") || !*side_machine(t->b, t->row_b, "bench"))
        return NULL;
    char *why = run_differs(t, t->a, t->row_a);
    return why ? why : run_differs(t, t->b, t->row_b);
}

char *conditions_differ(const side *a, size_t row_a, const side *b, size_t row_b, const char *across)
{
    const two_rows t = {a, b, row_a, row_b, across, uses_nccl(a, row_a) && uses_nccl(b, row_b)};
    char *why = columns_differ(&t);
    return why ? why : software_differs(&t);
}
