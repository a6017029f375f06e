/* SPDX-License-Identifier: MIT */
/* bench_accounting in the report: figures of its tables against numbers worked out here, with the units that their text
 * names. */
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

/* Of P parameters in fp32 and data parallelism on two ranks: 4 P, with gradients 8 P, with moments 16 P in GiB; each rank
 * sends 2 (n - 1)/n = 1 of the gradients' 4 P, in GB. ZeRO-1 halves the moments. */
static void memory_and_traffic(void **state)
{
    const double p = 8e9, gib = 1024. * 1024 * 1024;
    csv_free(
        bench_rows(*state, "bench_accounting", "", "--variant zero --model 8e9 --ranks 2 --recipe fp32", EXIT_CODE_OK));
    char *text = report_of(*state);
    char *ddp = xasprintf("%.2f / %.2f / %.2f; %.2f", 4 * p / gib, 8 * p / gib, 16 * p / gib, 4 * p / 1e9);
    char *zero1 = xasprintf("%.2f / %.2f / %.2f; %.2f", 4 * p / gib, 8 * p / gib, 12 * p / gib, 4 * p / 1e9);
    if (!strstr(text, ddp) || !strstr(text, zero1))
        fail_msg("neither '%s' nor '%s' may be missing in: %s", ddp, zero1, text);
    free(ddp);
    free(zero1);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_and_traffic)};
    return cmocka_run_group_tests_name("accounting in the report", tests, folder_create, folder_remove);
}
