/* SPDX-License-Identifier: MIT */
/* bench_transformer --cold: each case is measured by a process of its own, with the options that were given, and is
 * checked. Run from the project's root. */
#include "tests/support/bench_run.h"
#include "tests/support/test.h"

#include <sys/wait.h>

/* The exit code of bench_transformer on the CPU in the folder, with rows in rows.csv. */
static int run(const char *folder, const char *arguments)
{
    OWNED char *program = programs_folder();
    OWNED char *command =
        xasprintf("cd '%s' && '%s/bench_transformer' --device cpu --seq 8 --batch=1 --layers 1 %s --csv "
                  "'some rows.csv' >out 2>&1",
                  folder, program, arguments);
    const int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static csv *rows_in(const char *folder)
{
    OWNED char *path = folder_path(folder, "some rows.csv");
    csv *c = csv_read(path);
    assert_non_null(c);
    return c;
}

TEST_IN_FOLDER(each_case_has_its_process)
{
    assert_int_equal(run(*state, "--warmup 0,1 --precision fp32,bf16 --iters 2 --cold"), EXIT_CODE_OK);
    csv *c = rows_in(*state);
    assert_int_equal(c->rows, 4);
    for (size_t i = 0; i < c->rows; i++) {
        static const char *const want[][2] = {{"status", "ok"}, {"cold", "1"},    {"seq", "8"},  {"batch", "1"},
                                              {"layers", "1"},  {"n_steps", "2"}, {"check", "1"}};
        for (size_t k = 0; k < sizeof want / sizeof *want; k++)
            assert_string_equal(csv_cell(c, i, want[k][0]), want[k][1]);
        assert_true(csv_real(c, i, "err_grad") > 0 && csv_real(c, i, "first_step_ms") > 0);
        assert_string_equal(csv_cell(c, i, "warmup"), i % 2 ? "1" : "0");
        assert_string_equal(csv_cell(c, i, "precision"), i / 2 ? "bf16" : "fp32");
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(csv_cell(c, i, "run_id"), csv_cell(c, k, "run_id"));
    }
    csv_free(c);
    assert_int_equal(run(*state, "--warmup 0,1,2 --precision fp32 --cold 1 --iters 2 --resume"), EXIT_CODE_OK);
    c = rows_in(*state);
    assert_int_equal(c->rows, 5);
    csv_free(c);
}

TEST_IN_FOLDER(codes_of_processes_are_one)
{
    assert_int_equal(run(*state, "--variant graph,kernels --precision fp32 --cold 1"), EXIT_CODE_OK);
    assert_int_equal(run(*state, "--variant graph --precision fp32,bf16 --cold 1"), EXIT_CODE_UNSUPPORTED);
    assert_int_equal(run(*state, "--variant graph,kernels --precision fp32 --cold 1 --machine /"), EXIT_CODE_USAGE);
}
