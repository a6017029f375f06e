/* SPDX-License-Identifier: MIT */
/* cmocka, the headers that most tests want, how tests are listed, and the sample bench and folder that many share. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/rows/rows.h"

/* Lists (seq, head-dim, dtype, ...), single values, --iters in place of the common one, variants plain and fast. */
extern const bench_info sample_bench;
/* Where it is parsed: without a GPU, so that cpu is the default, and with one. */
extern const options_env sample_on_cpu, sample_with_cuda;

/* Parses "a b c" as the arguments of sample_bench; NULL and the sentence in msg when they are refused. */
options *sample_parse(const char *arguments, char *msg, size_t msg_bytes);

options *sample_options_of(const char *arguments); /* the same; fails the test when refused */

/* A quiet writer of rows of machine test-x1, device cpu, to the CSV at path (NULL: none). */
row_writer *sample_rows(const options *o, const char *path, bool resume);
/* Writes case `index` with a value in every column, and a reason with commas and quotes when the status is not ok. */
void sample_row(row_writer *r, const options *o, size_t index, row_status status);

/* TEST(name) { ... } defines a test of this program, with the argument `void **state`. The main of tests/support runs the
 * tests in the order of their lines. */
#define TEST(name) TEST_WITH(name, NULL, NULL)
#define TEST_IN_FOLDER(name) TEST_WITH(name, folder_create, folder_remove)
#define TEST_WITH(name, setup, teardown)                                                                               \
    static void name(void **state);                                                                                    \
    AT_START(add_##name, test_add(&(struct CMUnitTest){#name, name, setup, teardown, NULL}, __LINE__))                 \
    static void name(__attribute__((unused)) void **state)
/* What is done once, before and after all tests. */
#define TESTS_WITH(setup, teardown) AT_START(surround, tests_surround(setup, teardown))
/* Without the condition the program is one test, which is skipped. */
#define TESTS_NEED(condition)                                                                                          \
    static bool can_run(void)                                                                                          \
    {                                                                                                                  \
        return condition;                                                                                              \
    }                                                                                                                  \
    AT_START(ask_first, tests_need(can_run))
/* The program has another main, by which it is started under another name. */
#define PROGRAM(name, other) AT_START(add_##other, program_add(name, other))
#define AT_START(name, call)                                                                                           \
    __attribute__((constructor)) static void name(void)                                                                \
    {                                                                                                                  \
        call;                                                                                                          \
    }

void test_add(const struct CMUnitTest *test, int line);
void tests_surround(CMFixtureFunction setup, CMFixtureFunction teardown);
void tests_need(bool (*can_run)(void));
void program_add(const char *name, int (*main)(int argc, char **argv));
int tests_run(void); /* for a program with a main of its own */
/* The main of a program whose subject this build has not: one test, which is skipped. */
int skip_program(void);
void needs_gloo(void); /* skips the test in a build without it, which has no ranks on the CPU */

/* For setup and teardown of a test or group: *state is the path of a new folder, removed with all that is in it. */
int folder_create(void **state);
int folder_remove(void **state);
char *folder_path(const char *folder, const char *name); /* folder/name; caller frees */

/* As OWNED does it, of a type that OWNER names: OWNED_OPTIONS options *o = ... */
#define OWNER(type, free_it)                                                                                           \
    static inline void owned_##type(type **it)                                                                         \
    {                                                                                                                  \
        free_it(*it);                                                                                                  \
    }
#define OWNED_BY(type) __attribute__((cleanup(owned_##type)))
OWNER(options, options_free)
#define OWNED_OPTIONS OWNED_BY(options)
OWNER(bench_case, case_free)
#define OWNED_CASE OWNED_BY(bench_case)

char *file_text(const char *path); /* the whole file; caller frees */
char *folder_text(const char *folder, const char *name);
/* What a shell command prints on stdout; its exit code in *code (-1: it died). Caller frees. */
char *command_text(const char *command, int *code);
void file_write(const char *path, const char *text);
void folder_write(const char *folder, const char *name, const char *text);
void folder_program(const char *folder, const char *name, const char *text); /* an executable script */

/* Fail the test with the whole text. */
void text_has(const char *text, const char *wanted);
void text_lacks(const char *text, const char *unwanted);
