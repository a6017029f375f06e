/* SPDX-License-Identifier: MIT */
/* Rows: columns, missing values, what a status does, the table on stdout, exit codes. */
#include "tests/support/test.h"

#include "common/core/results.h"

#include <sys/stat.h>
#include <sys/wait.h>

static const char *const facts[] = {"campaign", "machine", "device", "settle_s", "seed", NULL};

TEST(columns_and_values)
{
    OWNED char *path = folder_path(*state, "deep/er/columns.csv"); /* folders are created */
    OWNED_OPTIONS options *o = sample_options_of("--seq 128,256 --dtype bf16 --variant fast");
    row_writer *r = sample_rows(o, path, false);
    sample_row(r, o, 0, ROW_OK);
    bench_case *c = case_at(o, 1);
    row *w = row_begin(r, c);
    row_state(w, &(row_conditions){1980, 1700, 1830.5, 690.25, 40, "power+thermal"});
    row_commit(w); /* nothing was measured */
    case_free(c);
    OWNED char *run_id = xstrdup(rows_run_id(r));
    assert_int_equal(rows_close(r), 0);

    OWNED char *text = file_text(path);
    const char *header =
        "schema,method,bench,variant,status,reason,seq,head_dim,dtype,decay,causal,scale,fwd_ms,"
        "peak_bytes,timer,err_fwd,run_id,gpu,gpu_uuid,check,l2,timer_asked,sm_mhz,sm_min_mhz,sm_median_mhz,"
        "power_w,readings,throttle,commit,utc\n"
        "3,3,bench_sample,fast,ok,,128,16,bf16,0.5,1,1,0.333333333,68719476736,host,0.25,";
    assert_int_equal(strncmp(text, header, strlen(header)), 0);
    assert_int_equal(text[strlen(text) - 1], '\n');

    OWNED_CSV csv *t = csv_read(path);
    OWNED char *machine = results_machine(path);
    results_join(t, machine, facts);
    assert_int_equal(t->rows, 2);
    assert_int_equal(t->dropped, 0);
    assert_string_equal(csv_cell(t, 0, "run_id"), run_id);
    for (size_t i = 0; i < t->rows; i++) {
        assert_string_equal(csv_cell(t, i, "campaign"), run_id); /* it is alone */
        assert_string_equal(csv_cell(t, i, "machine"), "test-x1");
        assert_string_equal(csv_cell(t, i, "device"), "cpu");
        assert_string_equal(csv_cell(t, i, "seed"), "1");
    }
    assert_string_equal(csv_cell(t, 0, "gpu_uuid"), "GPU-1");
    assert_string_equal(csv_cell(t, 0, "gpu"), "A, \"quoted\" GPU");
    assert_string_equal(csv_cell(t, 0, "sm_mhz"), "nan");
    assert_string_equal(csv_cell(t, 1, "sm_mhz"), "1980");
    assert_string_equal(csv_cell(t, 1, "throttle"), "power+thermal");
    assert_string_equal(csv_cell(t, 1, "fwd_ms"), "nan");
    assert_string_equal(csv_cell(t, 1, "peak_bytes"), "nan");
    assert_string_equal(csv_cell(t, 1, "timer"), "");
}

/* Rows of a bench that times nothing have no clocks, each cell is below its name, and --resume counts them. */
TEST(untimed)
{
    char *path = folder_path(*state, "untimed.csv"), msg[256];
    char *argv[] = {"bench_sample", "--seq", "128", "--dtype", "bf16", "--variant", "fast"};
    bench_info bench = sample_bench;
    bench.untimed = true;
    OWNED_OPTIONS options *o = options_try(&bench, sizeof argv / sizeof *argv, argv, &sample_on_cpu, msg, sizeof msg);
    row_writer *r = sample_rows(o, path, false);
    sample_row(r, o, 0, ROW_OK);
    rows_close(r);
    OWNED_CSV csv *t = csv_read(path);
    OWNED char *machine = results_machine(path);
    results_join(t, machine, facts);
    assert_int_equal(t->rows, 1);
    assert_int_equal(t->dropped, 0);
    assert_string_equal(csv_cell(t, 0, "seed"), "1");
    assert_string_equal(csv_cell(t, 0, "settle_s"), "");
    for (const char *const *name = rows_layout.timed; *name; name++)
        if (csv_column(t, *name) >= 0 && *csv_cell(t, 0, *name))
            fail_msg("%s is there", *name);
    assert_string_equal(csv_cell(t, 0, "check"), "1");
    assert_int_equal(strlen(csv_cell(t, 0, "utc")), strlen("2026-11-21T09:05:00Z"));
    r = sample_rows(o, path, true);
    bench_case *c = case_at(o, 0);
    assert_true(rows_has(r, c));
    case_free(c);
    rows_close(r);
    free(path);
}

TEST(numbers)
{
    OWNED char *path = folder_path(*state, "numbers.csv");
    OWNED_OPTIONS options *o = sample_options_of("--seq 1 --dtype bf16 --variant fast");
    row_writer *r = sample_rows(o, path, false);
    bench_case *c = case_at(o, 0);
    row *w = row_begin(r, c);
    row_real(w, "fwd_ms", -NAN);
    row_real(w, "peak_bytes", 137438953472.0); /* exact in a column of whole numbers */
    row_int(w, "err_fwd", -3);
    row_commit(w);
    case_free(c);
    rows_close(r);
    OWNED_CSV csv *t = csv_read(path);
    assert_string_equal(csv_cell(t, 0, "fwd_ms"), "nan");
    assert_string_equal(csv_cell(t, 0, "peak_bytes"), "137438953472");
    assert_string_equal(csv_cell(t, 0, "err_fwd"), "-3");
}

TEST(status_and_exit_code)
{
    OWNED char *path = folder_path(*state, "status.csv");
    OWNED_OPTIONS options *o = sample_options_of("--seq 128,256 --dtype bf16"); /* four rows */
    row_writer *r = sample_rows(o, path, false);
    sample_row(r, o, 0, ROW_OOM);
    sample_row(r, o, 1, ROW_SKIP);
    assert_int_equal(rows_close(r), 0);
    r = sample_rows(o, path, false);
    sample_row(r, o, 2, ROW_FAIL);
    sample_row(r, o, 3, ROW_OK);
    assert_int_equal(rows_close(r), EXIT_CODE_VERIFY);

    OWNED_CSV csv *t = csv_read(path);
    assert_int_equal(t->rows, 4);
    static const char *const statuses[] = {"oom", "skip", "fail", "ok"};
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(csv_cell(t, i, "status"), statuses[i]);
        assert_string_equal(csv_cell(t, i, "reason"), i < 3 ? "why, \"so\" indeed" : "");
        assert_int_equal(isnan(csv_real(t, i, "fwd_ms")), i < 3); /* a wrong kernel never gets a speed */
        assert_int_equal(isnan(csv_real(t, i, "peak_bytes")), i < 3);
        assert_string_equal(csv_cell(t, i, "timer"), i < 3 ? "" : "host");
        assert_int_equal(isnan(csv_real(t, i, "err_fwd")), i < 2);
    }
}

TEST(without_a_file)
{
    OWNED_OPTIONS options *o = sample_options_of("--seq 1 --dtype bf16 --variant fast");
    row_writer *r = sample_rows(o, NULL, true);
    sample_row(r, o, 0, ROW_OK);
    assert_int_equal(rows_close(r), 0);
}

static char *table_of(void **state, const char *arguments)
{
    OWNED char *path = folder_path(*state, "stdout.txt");
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        options *o = sample_options_of(arguments);
        if (!freopen(path, "w", stdout))
            _exit(1);
        rows_info info = {.machine = "test-x1", .device_name = "A GPU", .device = "cpu"};
        row_writer *r = rows_open(o, &info, false);
        for (size_t i = 0; i < cases_count(o); i++)
            sample_row(r, o, i, i == 1 ? ROW_OOM : ROW_OK);
        rows_close(r);
        fflush(stdout);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return file_text(path);
}

TEST(table)
{
    OWNED char *text = table_of(state, "--seq 128,1024 --dtype bf16");
    assert_string_equal(text, "bench_sample on A GPU (cpu), machine test-x1\n"
                              "dtype=bf16\n"
                              "\n"
                              " seq  variant  status     fwd_ms    peak_bytes\n"
                              " 128  plain    ok         0.3333   68719476736\n"
                              " 128  fast     oom     why, \"so\" indeed\n"
                              "1024  plain    ok         0.3333   68719476736\n"
                              "1024  fast     ok         0.3333   68719476736\n"
                              "\n"
                              "4 rows, not stored\n");
}

/* The program stops with a message where it can't write: code 2 for a path that was wrong from the start, else 1. Bugs of a bench
 * stop it too. */
static int code_of(void (*what)(void **state), void **state)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(99);
        what(state);
        _exit(98);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void open_below_a_file(void **state)
{
    char *blocker = folder_path(*state, "blocker"), *path = folder_path(*state, "blocker/x.csv");
    file_write(blocker, "");
    sample_rows(sample_options_of(""), path, false);
}

static void open_a_folder(void **state)
{
    sample_rows(sample_options_of(""), *state, false);
}

static void lose_the_path(void **state)
{
    options *o = sample_options_of("");
    OWNED char *path = folder_path(*state, "lost.csv");
    row_writer *r = sample_rows(o, path, false);
    unlink(path);
    mkdir(path, 0777);
    sample_row(r, o, 0, ROW_OK);
}

static void unknown_column(void **state)
{
    (void)state;
    options *o = sample_options_of("");
    row_real(row_begin(sample_rows(o, NULL, false), case_at(o, 0)), "bwd_ms", 1);
}

static void text_in_a_number(void **state)
{
    (void)state;
    options *o = sample_options_of("");
    row_text(row_begin(sample_rows(o, NULL, false), case_at(o, 0)), "fwd_ms", "1");
}

TEST(fatal)
{
    assert_int_equal(code_of(open_below_a_file, state), EXIT_CODE_USAGE);
    assert_int_equal(code_of(open_a_folder, state), EXIT_CODE_USAGE);
    assert_int_equal(code_of(lose_the_path, state), EXIT_CODE_FAILURE);
    assert_int_equal(code_of(unknown_column, state), EXIT_CODE_FAILURE);
    assert_int_equal(code_of(text_in_a_number, state), EXIT_CODE_FAILURE);
}

TESTS_WITH(folder_create, folder_remove)
