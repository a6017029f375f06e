/* SPDX-License-Identifier: MIT */
/* What a build says of its commit (Makefile): whether files that are compiled in have been changed. In a small repository
 * with the Makefile and its scripts. Run from the project's root. */
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

#define GIT "env -u GIT_DIR -u GIT_WORK_TREE -u GIT_INDEX_FILE git -c user.name=t -c user.email=t@example.org "

static int repository_create(void **state)
{
    if (folder_create(state) != 0)
        return -1;
    char *command =
        xasprintf("d='%s' && mkdir -p \"$d\"/common/core \"$d\"/bench \"$d\"/tests \"$d\"/reference \"$d\"/docs && "
                  "cp Makefile \"$d\" && cp -r common/build \"$d\"/common/ && "
                  "cp common/core/version.h \"$d\"/common/core/ && cd \"$d\" && "
                  "echo none >common/build/commit && echo /out/ >.gitignore && "
                  "touch bench/a.c reference/a.csv docs/a.md && "
                  "if command -v git >/dev/null; then " GIT "init -q && " GIT "add -A && " GIT "commit -qm first; fi",
                  (char *)*state);
    const int status = system(command);
    free(command);
    return status;
}

/* -DSTEPBENCH_DIRTY=<want> is among what build_info.c is compiled with after `change` in the repository. */
static void expect_dirty(const char *folder, const char *change, const char *want)
{
    char *command =
             xasprintf("cd '%s' && { %s; } && env -u STEPBENCH_COMMIT -u STEPBENCH_DIRTY -u MAKEFLAGS -u GIT_DIR "
                       "GIT_CEILING_DIRECTORIES=\"${PWD%%/*}\" "
                       "make -s CC=true CXX=true CUDA=0 SETUP=0 BUILD=out out/build_info.flags >make.txt 2>&1",
                       folder, change),
         *path = folder_path(folder, "out/build_info.flags"), *flag = xasprintf(" -DSTEPBENCH_DIRTY=%s ", want);
    assert_int_equal(system(command), 0);
    char *flags = file_text(path);
    if (!strstr(flags, flag))
        fail_msg("after '%s' there is no%sin: %s", change, flag, flags);
    free(flags);
    free(flag);
    free(path);
    free(command);
}

static void a_build_knows_changed_files(void **state)
{
    if (system("command -v git >/dev/null") != 0)
        skip();
    static const char *const compiled[][2] = {{"echo 1 >reference/a.csv", GIT "checkout -q reference"},
                                              {"touch bench/bench_new.c", "rm bench/bench_new.c"},
                                              {"echo '# 1' >>Makefile", GIT "checkout -q Makefile"}};
    expect_dirty(*state, "true", "0");
    expect_dirty(*state, "echo 1 >docs/a.md", "0");
    for (size_t i = 0; i < sizeof compiled / sizeof *compiled; i++) {
        expect_dirty(*state, compiled[i][0], "1");
        expect_dirty(*state, compiled[i][1], "0");
    }
    expect_dirty(*state, "mv .git git-was", "-1");
}

static void an_archive_knows_its_commit_alone(void **state)
{
    expect_dirty(*state, "printf '%040d\\n' 7 >common/build/commit", "-1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_build_knows_changed_files, repository_create, folder_remove),
        cmocka_unit_test_setup_teardown(an_archive_knows_its_commit_alone, repository_create, folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
