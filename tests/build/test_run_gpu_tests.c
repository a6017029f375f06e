/* SPDX-License-Identifier: MIT */
/* The runner of the GPU's tests, with made-up programs: every shard runs once, on all GPUs, and a failure is one. */
#include "tests/support/test.h"

#include <sys/wait.h>

/* Its exit code; what it says goes to out.txt. */
static int run(const char *folder, const char *environment)
{
    folder_program(folder, "nvidia-smi", "#!/bin/sh\necho 'GPU 0: a'; echo 'GPU 1: b'\n");
    folder_program(folder, "compute-sanitizer", "#!/bin/sh\nshift 4; exec \"$@\"\n");
    folder_program(folder, "ops",
                   "#!/bin/sh\n"
                   "case \"$*\" in\n"
                   "--list) printf '%s %s %s\\n' a x 1 a x 2 a y 1 b x 1 b y 1; exit ;;\n"
                   "'--small --list') echo a x 1; exit ;;\n"
                   "'--op b --dtype y') echo 'ops: nothing ran: no case' >&2; exit 2 ;;\n"
                   "'--op b --dtype x') exit \"${B_ENDS:-0}\" ;;\n"
                   "esac\n"
                   "echo \"ran $* on GPU $CUDA_VISIBLE_DEVICES\"\n");
    OWNED char *command = xasprintf("env -u CUDA_VISIBLE_DEVICES PATH='%s':\"$PATH\" HAVE_CUDA=1 CUDA_HOME=/nowhere %s "
                                    "bash common/build/run_gpu_tests.sh '%s/ops' >'%s/out.txt' 2>&1",
                                    folder, environment, folder, folder);
    const int state = system(command);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

static char *said(const char *folder)
{
    char *path = folder_path(folder, "out.txt"), *text = file_text(path);
    free(path);
    return text;
}

static int times(const char *text, const char *words)
{
    int n = 0;
    while ((text = strstr(text, words)) != NULL) {
        n++;
        text++;
    }
    return n;
}

TEST_IN_FOLDER(shards_run_once)
{
    assert_int_equal(run(*state, "GPU_TEST_JOBS=3"), 0);
    OWNED char *text = said(*state);
    assert_int_equal(times(text, "ran --op a --dtype x on"), 1);
    assert_int_equal(times(text, "ran --op a --dtype y on"), 1);
    assert_int_equal(times(text, "ran --small --op a --dtype x on"), 2); /* memcheck, racecheck */
    assert_int_equal(times(text, "nothing ran"), 0);
    assert_true(times(text, "on GPU 0") > 0 && times(text, "on GPU 1") > 0);
    assert_int_equal(times(text, "\n5 passed, 0 failed\n"), 1);
}

TEST_IN_FOLDER(failures_count)
{
    assert_int_equal(run(*state, "B_ENDS=3"), 1);
    OWNED char *text = said(*state);
    assert_int_equal(times(text, "\n4 passed, 1 failed\n"), 1);
    assert_int_equal(times(text, "-- FAILED with exit 3"), 1);
}

/* What a person keeps of it: a line for each test, and the closing one. A log that was cut off is refused. */
TEST_IN_FOLDER(a_log_becomes_short)
{
    int code;
    assert_int_equal(run(*state, "B_ENDS=3"), 1);
    char *command = xasprintf("bash common/build/gpu_test_summary.sh '%s/out.txt'", (char *)*state);
    char *text = command_text(command, &code);
    assert_int_equal(code, 0);
    assert_int_equal(times(text, "\n"), 6);
    assert_int_equal(times(text, "FAILED     -          -  ops --op b --dtype x\n"), 1);
    assert_int_equal(times(text, "  ops --small --op a --dtype x under racecheck\n"), 1);
    assert_non_null(strstr(text, "\n4 passed, 1 failed\n"));
    free(text);
    free(command);
    command = xasprintf("head -n 3 '%s/out.txt' >'%s/cut.txt'; bash common/build/gpu_test_summary.sh '%s/cut.txt' 2>&1",
                        (char *)*state, (char *)*state, (char *)*state);
    text = command_text(command, &code);
    assert_int_equal(code, EXIT_CODE_USAGE);
    free(text);
    free(command);
}
