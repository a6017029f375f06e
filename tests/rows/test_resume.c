/* SPDX-License-Identifier: MIT */
/* A sweep that is killed with SIGKILL keeps its rows, and --resume does the rest: each case has exactly one row. */
#include "tests/support/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* What a bench does, with a sleep for the measurement. */
static int sweep(const char *path, bool resume, long case_ms)
{
    OWNED_OPTIONS options *o = sample_options_of("--seq 1:10 --dtype bf16,fp32");
    row_writer *r = sample_rows(o, path, resume);
    for (size_t i = 0; i < cases_count(o); i++) {
        OWNED_CASE bench_case *c = case_at(o, i);
        if (!rows_has(r, c)) {
            row *w = row_begin(r, c);
            sleep_ms(case_ms);
            row_real(w, "fwd_ms", (double)case_int(c, "seq"));
            if (i % 7 == 3)
                row_status_set(w, i % 2 ? ROW_OOM : ROW_SKIP, "no, \"%zu\"", i);
            row_commit(w);
        }
    }
    return rows_close(r);
}

static size_t rows_in(const char *path)
{
    OWNED_CSV csv *t = csv_read(path);
    return t ? t->rows : 0;
}

/* Runs the sweep in a child and kills it when the file has `rows` rows and a little time has passed. */
static void run_and_kill(const char *path, bool resume, size_t rows, long more_ms)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(sweep(path, resume, 50)); /* long enough not to be done when the kill comes late */
    for (int waited = 0; rows_in(path) < rows; waited++) {
        assert_true(waited < 5000);
        sleep_ms(2);
    }
    sleep_ms(more_ms);
    assert_int_equal(kill(child, SIGKILL), 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void each_case_once(const char *path)
{
    OWNED_OPTIONS options *o = sample_options_of("--seq 1:10 --dtype bf16,fp32");
    OWNED_CSV csv *t = csv_read(path);
    assert_int_equal(t->rows, cases_count(o));
    for (size_t i = 0; i < cases_count(o); i++) {
        OWNED_CASE bench_case *c = case_at(o, i);
        size_t found = 0;
        for (size_t k = 0; k < t->rows; k++)
            found += csv_real(t, k, "seq") == (double)case_int(c, "seq") &&
                     strcmp(csv_cell(t, k, "dtype"), case_text(c, "dtype")) == 0 &&
                     strcmp(csv_cell(t, k, "variant"), case_variant(c)) == 0;
        assert_int_equal(found, 1);
    }
}

TEST(killed_and_resumed)
{
    OWNED char *path = folder_path(*state, "killed.csv");
    run_and_kill(path, false, 5, 30);
    size_t before = rows_in(path);
    OWNED char *text = file_text(path);
    assert_true(before >= 5 && before < 40);
    run_and_kill(path, true, before + 5, 10); /* killed again */
    OWNED char *longer = file_text(path);
    assert_int_equal(strncmp(longer, text, strlen(text)), 0); /* what was there is untouched */
    assert_true(rows_in(path) >= before + 5);
    assert_int_equal(sweep(path, true, 0), 0);
    each_case_once(path);
    assert_int_equal(sweep(path, true, 0), 0); /* nothing left to do */
    each_case_once(path);
}

/* Killed in the middle of a write: the half row does not count as done, and its case is measured again. */
TEST(killed_while_writing)
{
    OWNED char *path = folder_path(*state, "writing.csv");
    assert_int_equal(sweep(path, false, 0), 0);
    char *text = file_text(path), *line = text;
    for (int i = 0; i < 18; i++) /* row 17, an `oom` with a quoted reason */
        line = strchr(line, '\n') + 1;
    assert_non_null(strstr(line, "\"no, "));
    static const char *const cuts[] = {"bench_", "\"no", ",nan"};
    for (size_t i = 0; i < 3; i++) {
        size_t length = (size_t)(strstr(line, cuts[i]) - text) + strlen(cuts[i]);
        OWNED char *part = xasprintf("%.*s", (int)length, text);
        file_write(path, part);
        assert_int_equal(rows_in(path), 17);
        assert_int_equal(sweep(path, true, 0), 0);
        each_case_once(path);
    }
    free(text);
}

TESTS_WITH(folder_create, folder_remove)
