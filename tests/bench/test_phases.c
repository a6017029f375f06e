/* SPDX-License-Identifier: MIT */
/* What a bench says that it is doing is what it does: labels of phases follow one another as the work does, and none
 * outlives its own. */
#include "tests/support/test.h"

#include "tests/support/bench_run.h"

enum { MOST = 20 };

/* The labels of rank 0, or of a process alone, must have those that begin so among them, in this order. */
static void says(const char *folder, const char *bench, const char *arguments, const char *const want[MOST])
{
    csv_free(bench_rows(folder, bench, "STEPBENCH_PHASES=1", arguments, EXIT_CODE_OK));
    OWNED char *path = folder_path(folder, "out.txt"), *text = file_text(path), *start = xasprintf("%s[", bench);
    int next = 0;
    for (char *line = strtok(text, "\n"); line && want[next]; line = strtok(NULL, "\n")) {
        char *label = strstr(line, " s: ");
        if (strncmp(line, start, strlen(start)) != 0 || !label || strstr(line, "[rank"))
            continue;
        next += strncmp(label + 4, want[next], strlen(want[next])) == 0;
    }
    if (want[next])
        fail_msg("%s never says '%s' where it should, after '%s'", bench, want[next], next ? want[next - 1] : "");
}

TEST(a_step)
{
    static const char *const want[MOST] = {"opening the device",
                                           "check: plain fp32 of a slice",
                                           "check: reading what plain fp32 gave",
                                           "check: set-up of a slice",
                                           "tuning product",
                                           "check: set-up of a slice",
                                           "check: steps of a slice",
                                           "check: comparing with plain fp32",
                                           "setup of",
                                           "timing"};
    says(*state, "bench_transformer", "--size tiny --seq 8 --precision fp32 --iters 1 --variant kernels", want);
}

TEST(ranks)
{
#ifndef HAVE_GLOO
    skip();
#else
    static const char *const want[MOST] = {"check: set-up of a slice",
                                           "tuning product",
                                           "check: set-up of a slice",
                                           "check: gradients of a step on all ranks",
                                           "check: reading gradients",
                                           "check: update 3 of 3 on all ranks",
                                           "check: parameters of all ranks after update 3",
                                           "check: reading parameters",
                                           "check: one batch without other ranks",
                                           "check: step 3 of 3, batch 2 of 2 on one rank",
                                           "check: gradients of batch 2 of 2 on one rank",
                                           "check: parameters of one rank",
                                           "check: comparing with one rank",
                                           "setup of",
                                           "warm-up of",
                                           "timing of"};
    says(*state, "bench_fsdp",
         "--ranks 2 --size tiny --seq 8 --batch 1 --precision fp32 --grad-dtype policy --variant fsdp --iters 1", want);
#endif
}

TESTS_WITH(folder_create, folder_remove)
