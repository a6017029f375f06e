/* SPDX-License-Identifier: MIT */
/* Output that cannot be written is a failure of the program, in one sentence, and costs no row of a file; a stream that was
 * closed on purpose is no failure. Run from the project's root. */
#include "tests/support/test.h"

#include <sys/stat.h>

#include "tests/support/bench_run.h"

#define CASE "bench_flash --device cpu --seq 16 --head-dim 16 --dtype fp32 --variant flash --iters 3 --warmup 0 "
#define LOST "stdout can't be written"

/* Runs `call` of a program in the folder; what it says on stderr. Caller frees. */
static char *stderr_of(const char *folder, const char *call, const char *redirect, int want)
{
    int code;
    char *programs = programs_folder(), *build = build_folder(),
         *command =
             xasprintf("cd '%s' && PATH='%s:%s':\"$PATH\" && { %s; } 2>&1 %s", folder, programs, build, call, redirect),
         *said = command_text(command, &code);
    if (code != want)
        fail_msg("exit code %d, not %d: %s: %s", code, want, command, said);
    free(command);
    free(build);
    free(programs);
    return said;
}

static size_t rows_of(const char *folder, const char *name)
{
    OWNED char *path = folder_path(folder, name);
    OWNED_CSV csv *file = csv_read(path);
    return file ? file->rows : 0;
}

TEST_IN_FOLDER(a_full_stdout_is_a_failure)
{
    static const char *const calls[] = {"bench_flash --help",
                                        "bench_flash --version",
                                        "bench_flash --list",
                                        "bench_flash --list-options",
                                        "bench_flash --list-runs",
                                        "bench_flash --dry-run",
                                        "bench_flash --where --device cpu",
                                        CASE "--csv none",
                                        CASE "--csv none --json",
                                        CASE "--csv kept.csv",
                                        CASE "--csv kept.csv --quiet",
                                        "bench_allreduce --help",
                                        "bench_allreduce --device cpu --ranks 1 --dry-run",
                                        "report --help",
                                        "report --version",
                                        "report .",
                                        "stepcmp --help",
                                        "stepcmp --version",
                                        "stepcmp kept.csv kept.csv"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char *said = stderr_of(*state, calls[i], ">/dev/full", EXIT_CODE_FAILURE), *line = strstr(said, LOST);
        if (!line || strstr(line + 1, LOST))
            fail_msg("%s says: %s", calls[i], said);
        free(said);
    }
    assert_int_equal(rows_of(*state, "kept.csv"), 2);
}

TEST_IN_FOLDER(a_worse_code_stays)
{
    OWNED char *said = stderr_of(*state, "report --check .", ">/dev/full", EXIT_CODE_GATE);
    assert_non_null(strstr(said, LOST));
}

/* The launcher of ranks has nothing to add. */
TEST_IN_FOLDER(ranks_say_it_once)
{
    needs_gloo();
    OWNED char *said = stderr_of(*state,
                                 "bench_allreduce --device cpu --ranks 2 --bytes 1K --dtype fp32 --iters 1 --warmup 0 "
                                 "--variant all-reduce --csv none",
                                 ">/dev/full", EXIT_CODE_FAILURE);
    text_has(said, LOST);
    text_lacks(said, "before the others");
}

/* A table that is a folder can't be written, as on a full disk; all others are there. */
TEST_IN_FOLDER(a_profile_that_is_lost_is_a_failure)
{
    OWNED char *folder = folder_path(*state, "profile"), *table = folder_path(folder, "idle.csv");
    assert_true(mkdir(folder, 0777) == 0 && mkdir(table, 0777) == 0);
    OWNED char *said = stderr_of(*state, CASE "--csv rows.csv --profile", ">/dev/null", EXIT_CODE_FAILURE);
    text_has(said, "a table of the profile can't be written to");
    assert_int_equal(rows_of(*state, "rows.csv"), 1);
}

TEST_IN_FOLDER(a_full_csv_is_a_failure)
{
    OWNED char *path = folder_path(*state, "full.csv");
    assert_int_equal(symlink("/dev/full", path), 0);
    OWNED char *said = stderr_of(*state, CASE "--csv full.csv", ">/dev/null", EXIT_CODE_FAILURE);
    assert_non_null(strstr(said, "cannot write a row to full.csv: No space left on device"));
}

TEST_IN_FOLDER(a_full_database_says_what_is_wrong)
{
    folder_write(*state, "machine.csv", "run_id,key,value\nr-1,cpu,A CPU\n");
    OWNED char *build = build_folder(),
               *command = xasprintf("cd '%s' && trap '' XFSZ && ulimit -f 1 && '%s/report' --db "
                                    ". full.db 2>&1",
                                    (char *)*state, build);
    int code;
    OWNED char *said = command_text(command, &code);
    assert_int_equal(code, EXIT_CODE_FAILURE);
    assert_non_null(strstr(said, "full.db: disk I/O error"));
}

/* Else the file that is opened next is stdout, and gets the table. */
TEST_IN_FOLDER(closed_streams_are_no_files)
{
    free(stderr_of(*state, CASE "--csv closed.csv", "<&- >&-", EXIT_CODE_OK));
    assert_int_equal(rows_of(*state, "closed.csv"), 1);
    OWNED char *path = folder_path(*state, "closed.csv"), *text = file_text(path);
    assert_null(strstr(text, "variant  status"));
    assert_int_equal(strncmp(text, "schema,", 7), 0);
}

TESTS_NEED(access("/dev/full", W_OK) == 0)
