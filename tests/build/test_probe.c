/* SPDX-License-Identifier: MIT */
/* The probe (common/build/probe.sh), with a compiler that builds everything: wrong places and architectures are
 * refused, and programs are told why they have no CUDA. Run from the project's root. */
#include "tests/support/test.h"

#include <sys/stat.h>
#include <sys/wait.h>

/* Probes into <folder>/build with this environment; the exit code, and in *said what it prints on stderr. */
static int probe(const char *folder, const char *environment, char **said)
{
    OWNED char *command =
        xasprintf("env -u GLOO_HOME -u NCCL_HOME -u MPI_HOME CC=true CXX=true %s bash common/build/probe.sh "
                  "'%s/build' >'%s/out' 2>'%s/err'",
                  environment, folder, folder, folder);
    const int status = system(command);
    OWNED char *err = folder_path(folder, "err");
    *said = file_text(err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A compiler that cannot write there is not broken. */
TEST(a_build_folder_that_cannot_be_written)
{
    OWNED char *build = folder_path(*state, "build"),
               *wanted =
                   xasprintf("the build folder %s can't be written: Not a directory; set BUILD to another\n", build);
    char *said;
    folder_write(*state, "build", "");
    assert_int_equal(probe(*state, "CUDA=0", &said), EXIT_CODE_USAGE);
    assert_string_equal(said, wanted);
    assert_int_equal(remove(build), 0);
    free(said);
}

TEST(a_wrong_place_is_refused)
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

TEST(the_reason_for_no_cuda_is_right)
{
    static const struct {
        const char *environment, *reason;
    } table[] = {
        {"CUDA=0", "NO_CUDA := CUDA=0 was given to make\n"},
        {"CUDA=1 NVCC=/nonexistent", "NO_CUDA := make did not find all it needs (make print-config lists it)\n"}};
    char *config = folder_path(*state, "build/config.mk"), *said;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_int_equal(probe(*state, table[i].environment, &said), EXIT_CODE_OK);
        OWNED char *text = file_text(config);
        if (!strstr(text, table[i].reason))
            fail_msg("%s: no '%s' in: %s", table[i].environment, table[i].reason, text);
        free(said);
    }
    free(config);
}

/* CC links the tests: a gold that works for CXX alone would fail each of them. */
TEST(gold_is_tried_with_the_compiler_that_links)
{
    OWNED char *config = folder_path(*state, "build/config.mk"), *cc = folder_path(*state, "cc"),
               *no_gold = xasprintf("CUDA=0 CC='%s'", cc);
    char *said;
    folder_program(*state, "cc", "#!/bin/sh\ncase \" $* \" in *' -fuse-ld=gold '*) exit 1 ;; esac\n");
    for (int without = 0; without < 2; without++) {
        assert_int_equal(probe(*state, without ? no_gold : "CUDA=0", &said), EXIT_CODE_OK);
        free(said);
        OWNED char *text = file_text(config);
        assert_int_equal(!strstr(text, "TEST_LINKER := -fuse-ld=gold\n"), without);
    }
}

/* An nvcc that compiles everything, and knows two architectures. */
TEST(an_architecture_that_nvcc_lacks)
{
    char *nvcc = folder_path(*state, "nvcc"), *config = folder_path(*state, "build/config.mk"), *said;
    folder_program(*state, "nvcc",
                   "#!/bin/sh\ncase $1 in --version) echo release 12.4, ;; --list-gpu-arch) "
                   "printf 'compute_80\\ncompute_90\\n' ;; esac\n");
    OWNED char *known = xasprintf("CUDA=1 NVCC='%s' CUDA_ARCH=sm_90a,80", nvcc),
               *unknown = xasprintf("CUDA=1 NVCC='%s' CUDA_ARCH=80,120a", nvcc);
    assert_int_equal(probe(*state, known, &said), EXIT_CODE_OK);
    free(said);
    OWNED char *text = file_text(config);
    assert_non_null(strstr(text, "\nCUDA_ARCHS := 80,90\n"));
    assert_int_equal(probe(*state, unknown, &said), EXIT_CODE_USAGE);
    if (!strstr(said, "nvcc 12.4 cannot compile for 120a, which is from CUDA_ARCH; it can for 80,90: name one of them "
                      "with CUDA_ARCH, or install another CUDA toolkit\n"))
        fail_msg("%s", said);
    free(said);
    free(config);
    free(nvcc);
}

TESTS_WITH(folder_create, folder_remove)
