/* SPDX-License-Identifier: MIT */
/* For tests that run programs of this build from outside, benches and the report, on the CPU; and that stand between one and a library. */
#pragma once

#include "common/core/csv.h"

enum { BENCH_ANY_CODE = -2 }; /* in place of an exit code */

/* Absolute paths as they stand between single quotes of the shell, whatever is in them: of any path that is there, of this test's
 * build, and of the programs under test (STEPBENCH_BIN, else the current folder). Caller frees. */
char *shell_path(const char *path);
char *build_folder(void);
char *programs_folder(void);
/* Runs the report with these arguments, as a shell reads them; fails the test unless it ends well. */
void report_run(const char *arguments);
/* report.md of a folder of results, written anew. Caller frees. */
char *report_text(const char *dir);
/* A program of this test's build. Skips the test when it is not built. Caller frees. */
char *bench_path(const char *name);
const char *bench_device(void); /* cpu, or what STEPBENCH_DEVICE says */

/* Skips the test in a build without Gloo, if --ranks asks for more than one rank and they are on the CPU. */
void bench_needs_gloo(const char *arguments);
/* Runs `bench` of STEPBENCH_BIN (else of the current folder) in `folder`, with "NAME=value ..." in front and more
 * arguments behind. Fails the test when the exit code is another, and asks bench_needs_gloo where it says that rows were
 * measured. The rows of this run alone, which stay below results/test-x1 for other benches; NULL: none. */
csv *bench_rows(const char *folder, const char *bench, const char *environment, const char *arguments, int code);

/* Runs `bench` without rows; fails the test unless it ends with this exit code and says this. */
void bench_says(const char *bench, const char *arguments, int code, const char *said);

void bench_all_ok(const csv *c, size_t rows); /* it has that many, and all of them are ok */
/* Builds tests/preload/<name>.c as a library in `folder`; "LD_PRELOAD=..." for bench_rows. Caller frees. */
char *preload_build(const char *folder, const char *name);
