/* SPDX-License-Identifier: MIT */
/* For tests that run the report program from outside: it lies in the folder of the build, beside that of the tests. */
#ifndef STEPBENCH_TESTS_SUPPORT_REPORT_RUN_H
#define STEPBENCH_TESTS_SUPPORT_REPORT_RUN_H

/* The folder of this test's build. Caller frees. */
char *build_folder(void);
/* Runs it with these arguments, as a shell reads them; fails the test unless it ends well. */
void report_run(const char *arguments);
/* report.md of a folder of results, written anew. Caller frees. */
char *report_text(const char *dir);

#endif
