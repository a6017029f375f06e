/* SPDX-License-Identifier: MIT */
/* A folder of results: CSV files with a row for each case, and machine.csv, whose lines "run_id,key,value" say what holds for
 * a whole run. */
#pragma once

#include <stdio.h>

#include "common/core/csv.h"

enum { RESULTS_SCHEMA = 3 }; /* of rows: which columns they have, and what machine.csv says for them */

/* A sentence when the file has rows of another schema, which are not read; NULL when it can be read. Caller frees. */
char *results_refusal(const csv *file, const char *path);

/* A file of a folder: NULL where there is none; what is no plain file, as a FIFO, or can't be read has a problem and no rows. */
csv *results_read(const char *path);
char *results_machine(const char *path); /* machine.csv in the folder of that file. Caller frees */
void results_fact(FILE *out, const char *run_id, const char *key,
                  const char *value); /* a line of it; none for no value */
/* Appends lines, in one write, so that runs at the same time don't mix theirs. Warns when that fails. */
void results_facts_append(const char *machine, const char *lines);
/* "" when the run or the key is not there. machine may be NULL; of several lines the last one counts. */
const char *results_fact_find(const csv *machine, const char *run_id, const char *key);
/* Gives each row what machine.csv says of its run: a further column for each key, up to NULL, that is none yet. */
void results_join(csv *file, const char *machine, const char *const *keys);
