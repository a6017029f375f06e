/* SPDX-License-Identifier: MIT */
/* The example in CONTRIBUTING.md is complete: its three files build, run, are drawn and reported, and no list names them. */
#include "tests/support/test.h"

static char *build; /* the folder of this build, such as build/cpu */

TEST_IN_FOLDER(three_files_are_a_bench)
{
    OWNED char *flags_path = folder_path(build, "cc.flags"), *flags = file_text(flags_path);
    const bool sanitized = strstr(flags, "-fsanitize") != NULL;
    if (sanitized)
        skip(); /* the plain build tries it */
    OWNED char *command = xasprintf("bash tests/docs/example.sh '%s' '%s' >&2", build, (char *)*state);
    const int status = system(command);
    assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
    (void)argc;
    build = xstrdup(argv[0]);
    char *tests = strstr(build, "/tests/docs/");
    if (!tests)
        die(EXIT_CODE_USAGE, "%s: run it as BUILD/tests/docs/test_example from the project's root", argv[0]);
    *tests = 0;
    const int failed = tests_run();
    free(build);
    return failed;
}
