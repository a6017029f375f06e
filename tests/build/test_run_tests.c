/* SPDX-License-Identifier: MIT */
/* The runner of make test, with made-up programs: what counts as failed, and that nothing goes on after Ctrl-C. */
#include "tests/support/test.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Starts the runner with these programs of the folder, in a process group of its own. */
static pid_t start(const char *folder, const char *programs)
{
    OWNED char *command = xasprintf("cd '%s' && for p in %s; do set -- \"$@\" \"./$p\"; done && "
                                    "exec bash \"$OLDPWD/common/build/run_tests.sh\" logs \"$@\" >out.txt 2>&1",
                                    folder, programs);
    const pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    setpgid(pid, pid);
    return pid;
}

static int code_of(pid_t pid)
{
    int state;
    assert_int_equal(waitpid(pid, &state, 0), pid);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

TEST_IN_FOLDER(failures_count)
{
    folder_program(*state, "fine", "#!/bin/sh\necho '[  PASSED  ] 3 test(s).'\n");
    folder_program(
        *state, "fails",
        "#!/bin/sh\necho '[  PASSED  ] 1 test(s).'; echo '[  FAILED  ] fails: 2 test(s), listed below:'; exit 2\n");
    folder_program(*state, "dies", "#!/bin/sh\necho '[  PASSED  ] 1 test(s).'; kill -SEGV $$\n");
    folder_program(*state, "test_clock",
                   "#!/bin/sh\necho '[  SKIPPED ] test_clock: 1 test(s), listed below:'\n"
                   "echo '[  SKIPPED ] not_built'\n"); /* one of those that run alone */
    folder_program(*state, "empty", "#!/bin/sh\n");
    assert_int_equal(code_of(start(*state, "fine test_clock")), 0);
    assert_int_equal(code_of(start(*state, "fine fails dies test_clock empty")), 1);
    OWNED char *path = folder_path(*state, "out.txt"), *text = file_text(path);
    assert_non_null(strstr(text, "\n5 passed, 4 failed, 1 skipped\n"));
    assert_non_null(strstr(text, " 0 passed, 1 skipped  0 s\n        [  SKIPPED ] not_built\n"));
}

/* Programs of two rooms may have one name and run at the same time. */
TEST_IN_FOLDER(programs_of_one_name_have_logs_of_their_own)
{
    OWNED char *first = folder_path(*state, "a"), *second = folder_path(*state, "b");
    assert_int_equal(mkdir(first, 0777), 0);
    assert_int_equal(mkdir(second, 0777), 0);
    folder_program(*state, "a/same", "#!/bin/sh\nsleep 0.2; echo '[  PASSED  ] 1 test(s).'\n");
    folder_program(*state, "b/same", "#!/bin/sh\necho '[  PASSED  ] 2 test(s).'; sleep 0.6\n");
    assert_int_equal(code_of(start(*state, "a/same b/same")), 0);
    OWNED char *path = folder_path(*state, "out.txt"), *text = file_text(path);
    assert_non_null(strstr(text, "\n3 passed, 0 failed\n"));
}

/* The runner's exit code for a program that prints `text` and ends with 0. */
static int result_of(const char *folder, const char *text)
{
    OWNED char *script = xasprintf("#!/bin/sh\necho '%s'\n", text);
    folder_program(folder, "planted", script);
    return code_of(start(folder, "planted"));
}

TEST_IN_FOLDER(a_program_without_a_test_fails)
{
    assert_int_equal(result_of(*state, "[  PASSED  ] 1 test(s)."), 0);
    assert_int_equal(result_of(*state, "[  SKIPPED ] 1 test(s)"), 0);
    assert_int_not_equal(result_of(*state, "[  PASSED  ] 0 test(s)."), 0);
    assert_int_not_equal(result_of(*state, "all is well"), 0);
}

static bool is_there(const char *path)
{
    return access(path, R_OK) == 0;
}

/* Started side by side, and after the others: with Ctrl-C, which the whole group gets, and with a signal to the runner alone. */
TEST_IN_FOLDER(nothing_goes_on_after_a_signal)
{
    static const char *const names[] = {"slow", "test_clock"};
    folder_program(*state, "slow", "#!/bin/sh\necho $$ >pid.new; mv pid.new pid; exec sleep 60\n");
    folder_program(*state, "test_clock", "#!/bin/sh\necho $$ >pid.new; mv pid.new pid; exec sleep 60\n");
    OWNED char *path = folder_path(*state, "pid");
    for (int i = 0; i < 4; i++) {
        remove(path);
        const pid_t runner = start(*state, names[i / 2]);
        for (int n = 0; n < 1000 && !is_there(path); n++)
            usleep(10000);
        OWNED char *text = file_text(path);
        const pid_t slow = (pid_t)strtol(text, NULL, 10);
        assert_true(slow > 0 && kill(slow, 0) == 0);
        assert_int_equal(i % 2 ? kill(-runner, SIGINT) : kill(runner, SIGTERM), 0);
        assert_int_equal(code_of(runner), 130);
        for (int n = 0; n < 500 && kill(slow, 0) == 0; n++) /* whoever reaps it may take a moment */
            usleep(10000);
        if (kill(slow, 0) == 0) {
            kill(slow, SIGKILL);
            fail_msg("%s goes on after %s", names[i / 2], i % 2 ? "SIGINT" : "SIGTERM");
        }
    }
}
