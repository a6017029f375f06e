/* SPDX-License-Identifier: MIT */
/* The probe (common/build/probe.sh), with a compiler that builds everything: wrong places are refused, and programs are
 * told why they have no CUDA. Run from the project's root. */
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/core/error.h"

/* Probes into <folder>/build with this environment; the exit code, and in *said what it prints on stderr. */
static int probe(const char *folder, const char *environment, char **said)
{
    char *command =
        xasprintf("env -u GLOO_HOME -u NCCL_HOME -u MPI_HOME CC=true CXX=true %s bash common/build/probe.sh "
                  "'%s/build' >'%s/out' 2>'%s/err'",
                  environment, folder, folder, folder);
    const int status = system(command);
    char *err = folder_path(folder, "err");
    *said = file_text(err);
    free(err);
    free(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_wrong_place_is_refused(void **state)
{
    char *said, *empty = folder_path(*state, "empty"), *environment = xasprintf("CUDA=0 MPI_HOME='%s'", empty);
    mkdir(empty, 0777);
    assert_int_equal(probe(*state, "CUDA=0 GLOO_HOME=/nonexistent", &said), EXIT_CODE_USAGE);
    assert_string_equal(said, "GLOO_HOME=/nonexistent is not a folder; name the folder that holds its include and lib, "
                              "or leave GLOO_HOME empty\n");
    free(said);
    assert_int_equal(probe(*state, environment, &said), EXIT_CODE_USAGE);
    assert_non_null(strstr(said, "empty has neither include nor lib"));
    free(said);
    assert_int_equal(probe(*state, "CUDA=0 GLOO_HOME=", &said), EXIT_CODE_OK);
    free(said);
    free(environment);
    free(empty);
}

static void the_reason_for_no_cuda_is_right(void **state)
{
    static const struct {
        const char *environment, *reason;
    } table[] = {
        {"CUDA=0", "NO_CUDA := CUDA=0 was given to make\n"},
        {"CUDA=1 NVCC=/nonexistent", "NO_CUDA := make did not find all it needs (make print-config lists it)\n"}};
    char *config = folder_path(*state, "build/config.mk"), *said;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_int_equal(probe(*state, table[i].environment, &said), EXIT_CODE_OK);
        char *text = file_text(config);
        if (!strstr(text, table[i].reason))
            fail_msg("%s: no '%s' in: %s", table[i].environment, table[i].reason, text);
        free(text);
        free(said);
    }
    free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_place_is_refused),
        cmocka_unit_test(the_reason_for_no_cuda_is_right),
    };
    return cmocka_run_group_tests(tests, folder_create, folder_remove);
}
