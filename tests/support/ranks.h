/* SPDX-License-Identifier: MIT */
/* For tests of several ranks: runs this very program as another one (its main looks at argv[0]), with an environment of
 * its own, in the current folder. */
#pragma once

#include <sys/types.h>

/* For setup and teardown of a test: a new folder is the current one; STEPBENCH_... and rank variables are unset. */
int ranks_enter_folder(void **state);
int ranks_leave_folder(void **state);
#define TEST_IN_RANKS_FOLDER(name) TEST_WITH(name, ranks_enter_folder, ranks_leave_folder)

/* Starts `program` (by default this one: NULL) with argv[0] = name and arguments cut at blanks; "NAME=value" in front of
 * them go to the environment. Output goes to out<tag>.txt and err<tag>.txt. */
pid_t ranks_start(const char *program, const char *name, const char *tag, const char *arguments);
int ranks_wait(pid_t pid);                              /* its exit code, or minus the signal; fails after 60 s */
int ranks_run(const char *name, const char *arguments); /* with tag "" */
double ranks_seconds(void);

const char *ranks_text(const char *path); /* a file in static storage, valid until 4 further calls; "" when absent */
int ranks_lines(const char *path);
void ranks_wait_lines(const char *path, int lines);
/* Fails the test when a process of the ids in the file is still there after a second. */
void ranks_all_gone(const char *path);

/* What such a program says of itself as a bench: its tables are option_table, variant_table and column_table. */
#define TOY_BENCH(bench, question)                                                                                     \
    {                                                                                                                  \
        .name = bench, .summary = question, .notes = "", .examples = "", .options = option_table,                      \
        .variants = variant_table, .columns = column_table                                                             \
    }
