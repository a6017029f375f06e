/* SPDX-License-Identifier: MIT */
/* The list of a program's tests, and its main; see test.h. */
#include "tests/support/test.h"

#include <errno.h>

enum { TESTS_MAX = 128, PROGRAMS_MAX = 4 };
static struct CMUnitTest tests[TESTS_MAX];
static int lines[TESTS_MAX], count, program_count;
static CMFixtureFunction before, after;
static bool (*need)(void);
static struct {
    const char *name;
    int (*main)(int argc, char **argv);
} programs[PROGRAMS_MAX];

/* Constructors run in an order of the compiler's. */
void test_add(const struct CMUnitTest *test, int line)
{
    assert_true(count < TESTS_MAX);
    int at = count++;
    for (; at > 0 && lines[at - 1] > line; at--) {
        tests[at] = tests[at - 1];
        lines[at] = lines[at - 1];
    }
    tests[at] = *test;
    lines[at] = line;
}

void tests_surround(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    before = setup;
    after = teardown;
}

void tests_need(bool (*can_run)(void))
{
    need = can_run;
}

void program_add(const char *name, int (*main)(int argc, char **argv))
{
    assert_true(program_count < PROGRAMS_MAX);
    programs[program_count].name = name;
    programs[program_count++].main = main;
}

static void not_built(void **state)
{
    (void)state;
    skip();
}

int skip_program(void)
{
    const struct CMUnitTest skipped[] = {cmocka_unit_test(not_built)};
    return cmocka_run_group_tests(skipped, NULL, NULL);
}

void needs_gloo(void)
{
#ifndef HAVE_GLOO
    print_message("built without Gloo\n");
    skip();
#endif
}

int tests_run(void)
{
    if (need && !need())
        return skip_program();
    return _cmocka_run_group_tests(program_invocation_short_name, tests, (size_t)count, before, after);
}

__attribute__((weak)) int main(int argc, char **argv)
{
    for (int i = 0; i < program_count; i++)
        if (strcmp(program_invocation_short_name, programs[i].name) == 0)
            return programs[i].main(argc, argv);
    return tests_run();
}
