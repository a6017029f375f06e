/* SPDX-License-Identifier: MIT */
/* Speedups and shares of a ceiling of bench_flash: from other programs of the same campaign alone. */
#include "tests/support/bench_run.h"
#include "tests/support/test.h"

/* Runs a bench on the CPU, with rows in <folder>/results/test-x1, as part of a campaign; "" for none. */
static void run(const char *folder, const char *campaign, const char *bench, const char *arguments)
{
    OWNED char *programs = programs_folder();
    OWNED char *command =
        xasprintf("cd '%s' && STEPBENCH_RUN=%s '%s/%s' --device cpu --machine test-x1 --quiet --iters 3 "
                  "--max-time 0.01 %s >out.txt 2>&1",
                  folder, campaign, programs, bench, arguments);
    assert_int_equal(system(command), 0);
}

/* A column of the newest row of flash. */
static double newest(const char *folder, const char *column)
{
    OWNED char *path = folder_path(folder, "results/test-x1/bench_flash.csv");
    OWNED_CSV csv *c = csv_read(path);
    assert_non_null(c);
    assert_true(c->rows > 0);
    assert_string_equal(csv_cell(c, c->rows - 1, "variant"), "flash");
    const double x = csv_real(c, c->rows - 1, column);
    return x;
}

TEST(ratios_are_of_one_campaign)
{
    static const char case_of_flash[] = "--seq 16 --head-dim 16 --dtype fp32 --variant ";
    OWNED char *unfused = xasprintf("%sunfused", case_of_flash), *flash = xasprintf("%sflash", case_of_flash);
    run(*state, "monday", "bench_roofline", "--variant gemm --dtype fp32 --size 64");
    run(*state, "monday", "bench_flash", unfused);

    run(*state, "monday", "bench_flash", flash);
    assert_true(newest(*state, "speedup_fwd") > 0);
    assert_true(newest(*state, "fwd_ceiling_pct") > 0);
    static const char *const others[] = {"tuesday", "''"}; /* another campaign, and a run of its own */
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        run(*state, others[i], "bench_flash", flash);
        assert_true(newest(*state, "fwd_ms") > 0);
        assert_true(isnan(newest(*state, "speedup_fwd")));
        assert_true(isnan(newest(*state, "ceiling_tflops")));
        assert_true(isnan(newest(*state, "fwd_ceiling_pct")));
    }
}

TESTS_WITH(folder_create, folder_remove)
