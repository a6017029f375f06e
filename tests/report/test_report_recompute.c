/* SPDX-License-Identifier: MIT */
/* bench_recompute in the report: what was offloaded, in its columns, and only where something was. */
#include "tests/support/report_run.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "tests/support/bench_run.h"

/* The report of the folder that bench_rows fills. Caller frees. */
static char *report_of(const char *folder)
{
    char *dir = folder_path(folder, "results/test-x1"), *text = report_text(dir);
    free(dir);
    return text;
}

#define CASE                                                                                                           \
    "--size tiny --vocab 16 --d-model 64 --d-ff 128 --layers 5 --heads 4 --batch 8 --seq 32 --precision fp32 --iters " \
    "1 "

/* 4 blocks of 256 tokens: gate, up, their product and the norm, 3 F + d numbers of 4 bytes each. */
static void offloaded(void **state)
{
    csv_free(bench_rows(*state, "bench_recompute", "", CASE "--variant none,offload --offload mlp", EXIT_CODE_OK));
    char *text = report_of(*state), *mib = xasprintf(" %.2f |", 4 * 256 * 4. * (3 * 128 + 64) / 0x1p20);
    const char *row = strstr(text, "| offload (mlp) |");
    assert_non_null(strstr(text, "to the host MiB"));
    assert_non_null(strstr(text, "waited for it ms"));
    assert_non_null(row);
    if (!strstr(row, mib))
        fail_msg("no %s in: %s", mib, row);
    free(mib);
    free(text);
}

static void nothing_offloaded(void **state)
{
    csv_free(bench_rows(*state, "bench_recompute", "", CASE "--variant none,block", EXIT_CODE_OK));
    char *text = report_of(*state);
    assert_non_null(strstr(text, "| block |"));
    assert_null(strstr(text, "to the host MiB"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(offloaded, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(nothing_offloaded, folder_create, folder_remove)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
