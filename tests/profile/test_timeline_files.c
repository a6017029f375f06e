/* SPDX-License-Identifier: MIT */
/* The files of timelines: rows and comments of the CSV, that the trace is JSON, what is joined, several ranks on one
 * file, and a recording of two ranks over Gloo with communication after compute and beside it. */
#include "tests/support/test.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/core/clock.h"
#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/profile/nvtx.h"
#include "common/profile/timeline.h"
#include "common/comm/comm.h"
#include "tests/support/ranks.h"
#include "tests/support/streams.h"

/* ---- a checker of JSON ---- */

static const char *json_value(const char *p);

static const char *blanks(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

static const char *json_string(const char *p)
{
    if (*p++ != '"')
        return NULL;
    for (; *p != '"'; p++) {
        if ((unsigned char)*p < 0x20)
            return NULL;
        if (*p == '\\' && *++p == 'u') {
            for (int i = 0; i < 4; i++)
                if (!isxdigit((unsigned char)*++p))
                    return NULL;
        } else if (p[-1] == '\\' && !strchr("\"\\/bfnrt", *p)) {
            return NULL;
        }
    }
    return p + 1;
}

/* Members of an object or an array, up to `close`. */
static const char *json_members(const char *p, char close)
{
    p = blanks(p + 1);
    if (*p == close)
        return p + 1;
    for (;;) {
        if (close == '}') {
            p = json_string(blanks(p));
            if (!p || *(p = blanks(p)) != ':')
                return NULL;
            p++;
        }
        p = json_value(p);
        if (!p)
            return NULL;
        p = blanks(p);
        if (*p == close)
            return p + 1;
        if (*p++ != ',')
            return NULL;
    }
}

/* Behind the value, or NULL. */
static const char *json_value(const char *p)
{
    p = blanks(p);
    if (*p == '{' || *p == '[')
        return json_members(p, *p == '{' ? '}' : ']');
    if (*p == '"')
        return json_string(p);
    const size_t digits = strspn(p, "0123456789.-+eE");
    char number[32], *end;
    if (!digits || digits >= sizeof number)
        return NULL;
    memcpy(number, p, digits); /* under AddressSanitizer strtod looks for the end of the whole text */
    number[digits] = '\0';
    strtod(number, &end);
    return *end ? NULL : p + digits;
}

static bool is_json(const char *text)
{
    const char *end = json_value(text);
    return end && *blanks(end) == '\0';
}

static int count_of(const char *text, const char *part)
{
    const size_t length = strlen(part);
    int n = 0;
    for (; *text; text++) /* strstr of AddressSanitizer measures the whole text in each call */
        n += strncmp(text, part, length) == 0;
    return n;
}

static void the_checker_checks(void **state)
{
    (void)state;
    assert_true(is_json("{\"a\": [1, -2.5e3, \"x\\u00e9\\\"\"], \"b\": {}}\n"));
    assert_false(is_json("{\"a\": [1, 2}"));
    assert_false(is_json("[1,]"));
    assert_false(is_json("[1] 2"));
    assert_false(is_json("[\"a\nb\"]"));
    assert_false(is_json("[\"\\x\"]"));
    assert_false(is_json(""));
}

/* ---- what is written ---- */

static timed_span few[] = {{0, 10.5, 7, LANE_COMPUTE, "gemm"},
                           {5, 30.25, 21, LANE_COMMUNICATION, "all_reduce"},
                           {12, 20, 7, LANE_COMPUTE, "say \"x\", y"},
                           {18, 22, 7, LANE_COMPUTE, "begins early"},
                           {40, 41, 7, LANE_COPY, "host to device"}};
static const stream_timeline small = {few, sizeof few / sizeof *few, 0};

static void rows_say_what_ran(void **state)
{
    char *path = folder_path(*state, "few.csv");
    assert_true(timeline_write_csv(path, "naive, 2 ranks", 0, &small));
    assert_true(timeline_write_csv(path, "naive, 2 ranks", 1, &small));
    csv *c = csv_read(path);
    assert_int_equal(c->dropped, 0);
    assert_int_equal(c->columns, 7);
    assert_int_equal(c->rows, 2 * (5 + 2)); /* exposed: 10.5 to 12, 22 to 30.25 */
    assert_string_equal(csv_cell(c, 0, "label"), "naive, 2 ranks");
    assert_string_equal(csv_cell(c, 1, "lane"), "communication");
    assert_string_equal(csv_cell(c, 1, "end_us"), "30.250");
    assert_string_equal(csv_cell(c, 2, "name"), "say \"x\", y");
    assert_string_equal(csv_cell(c, 5, "lane"), "exposed");
    assert_string_equal(csv_cell(c, 6, "start_us"), "22.000");
    assert_string_equal(csv_cell(c, 7, "rank"), "1");
    csv_free(c);
    char *text = file_text(path);
    assert_int_equal(count_of(text, "label,rank,lane,stream,name,start_us,end_us\n"), 1);
    assert_non_null(strstr(text, "# rank 1 of naive, 2 ranks: 0.041 ms; compute 0.021 ms; communication 0.025 ms, "
                                 "of it exposed 0.010 ms; idle 0.010 ms\n"));
    free(text);
    assert_true(timeline_write_csv(path, "naive", 2, &(stream_timeline){NULL, 0, 0})); /* nothing but a comment */
    errno = 0;
    assert_false(timeline_write_csv("/nowhere/few.csv", "naive", 0, &small));
    assert_int_equal(errno, ENOENT);
    free(path);
}

static void the_trace_is_json(void **state)
{
    char *path = folder_path(*state, "trace.json");
    assert_true(timeline_write_chrome(path, "a \"label\"\n", 0, &small));
    char *text = file_text(path);
    assert_true(is_json(text));
    free(text);
    assert_true(timeline_write_chrome(path, "b", 1, &small));
    text = file_text(path);
    assert_true(is_json(text));
    assert_int_equal(count_of(text, "\"ph\":\"X\""), 10);
    assert_int_equal(count_of(text, "process_name"), 2);
    assert_non_null(strstr(text, "compute, stream 7\""));
    assert_non_null(strstr(text, "compute, stream 7 (2)\"")); /* what begins early has a thread of its own */
    assert_non_null(strstr(text, "communication, stream 21\""));
    assert_non_null(strstr(text, "\"ts\":5.000,\"dur\":25.250,\"cat\":\"communication\",\"name\":\"all_reduce\""));
    free(text);
    file_write(path, "something else");
    errno = 0;
    assert_false(timeline_write_chrome(path, "b", 1, &small));
    assert_int_equal(errno, EINVAL);
    free(path);
}

/* 20,000 kernels on 40 streams of a graph with a collective beside some of them, and one that nothing hides. */
static void many_spans_are_joined_and_fit(void **state)
{
    enum { KERNELS = 20000, COLLECTIVES = 100 };
    timed_span *spans = malloc((KERNELS + COLLECTIVES + 2) * sizeof *spans);
    size_t n = 0;
    for (int i = 0; i < KERNELS; i++) {
        const double start = i * 10.0;
        if (i % 200 == 0)
            spans[n++] = (timed_span){start, start + 1500, 99, LANE_COMMUNICATION, "all_reduce"};
        spans[n++] = (timed_span){start, start + (i % 3 ? 9 : 9.5), i / 50 % 40, LANE_COMPUTE, i % 3 ? "norm" : "gemm"};
    }
    spans[n++] = (timed_span){201000, 203000, 99, LANE_COMMUNICATION, "last"};
    spans[n++] = (timed_span){204000, 208000, 1, LANE_COMPUTE, "adamw"};
    const stream_timeline t = {spans, n, 0};
    const timeline_sums s = timeline_sum(&t);
    assert_true(s.exposed_us > 2000);
    char *path = folder_path(*state, "many.csv"), *trace = folder_path(*state, "many.json"), want[200];
    assert_true(timeline_write_csv(path, "graph", 0, &t));
    csv *c = csv_read(path);
    assert_true(c->rows <= 2000 && c->rows >= 500);
    const size_t end = c->rows - 1; /* the one part that is exposed for longer than what is joined */
    assert_string_equal(csv_cell(c, end, "lane"), "exposed");
    assert_string_equal(csv_cell(c, end, "start_us"), "201000.000");
    assert_string_equal(csv_cell(c, end, "end_us"), "203000.000");
    assert_string_not_equal(csv_cell(c, end - 1, "lane"), "exposed");
    assert_string_equal(csv_cell(c, end - 1, "name"), "adamw");
    assert_string_equal(csv_cell(c, end - 1, "start_us"), "204000.000");
    double rows_us = csv_real(c, end - 1, "end_us") - csv_real(c, end - 1, "start_us");
    for (size_t i = 0; i < end - 1; i++)
        if (strcmp(csv_cell(c, i, "lane"), "compute") == 0) {
            assert_string_equal(csv_cell(c, i, "name"), "norm"); /* two of three, in rows of three at least */
            rows_us += csv_real(c, i, "end_us") - csv_real(c, i, "start_us");
        }
    assert_true(fabs(rows_us - s.compute_us) < 1); /* joining closes no gaps */
    csv_free(c);
    char *text = file_text(path);
    snprintf(want, sizeof want, "of it exposed %.3f ms; idle %.3f ms (of %zu spans those within ", s.exposed_us / 1e3,
             s.idle_us / 1e3, n);
    assert_non_null(strstr(text, want));
    free(text);
    assert_true(timeline_write_chrome(trace, "graph", 0, &t));
    text = file_text(trace);
    assert_true(is_json(text));
    assert_int_equal(count_of(text, "\"ph\":\"X\""), n);
    assert_int_equal(count_of(text, "thread_name"), 2); /* many streams: a thread a lane */
    free(text);
    free(trace);
    free(path);
    free(spans);
}

static void ranks_write_at_once(void **state)
{
    enum { RANKS = 8, TIMES = 20 };
    char *path = folder_path(*state, "ranks.csv"), *trace = folder_path(*state, "ranks.json");
    for (int rank = 0; rank < RANKS; rank++)
        if (fork() == 0) {
            bool ok = true;
            for (int i = 0; i < TIMES; i++)
                ok = ok && timeline_write_csv(path, "x", rank, &small) &&
                     timeline_write_chrome(trace, "x", rank, &small);
            _exit(!ok);
        }
    for (int rank = 0, status; rank < RANKS; rank++) {
        wait(&status);
        assert_int_equal(status, 0);
    }
    csv *c = csv_read(path);
    assert_int_equal(c->rows, RANKS * TIMES * 7);
    assert_int_equal(c->dropped, 0);
    csv_free(c);
    char *text = file_text(trace);
    assert_true(is_json(text));
    assert_int_equal(count_of(text, "\"ph\":\"X\""), RANKS * TIMES * 5);
    free(text);
    free(trace);
    free(path);
}

/* ---- two ranks ---- */

static option_spec option_table[] = {LAUNCH_RANKS("2", "2"), {0}};
static const variant_spec variant_table[] = {
    {"naive", "communication after compute"}, {"overlap", "communication beside compute"}, {0}};
static const column_spec column_table[] = {{"exposed_us", COLUMN_REAL, true, "communication without compute"}, {0}};
static const bench_info info = {.name = "bench_timeline",
                                .summary = "Does communication hide?",
                                .notes = "",
                                .examples = "",
                                .options = option_table,
                                .variants = variant_table,
                                .columns = column_table};

static void compute(double seconds)
{
    const double until = host_seconds() + seconds;
    range_push("backward");
    while (host_seconds() < until)
        usleep(100);
    range_pop();
}

static void record(session *s, const bench_case *c, row *w)
{
    enum { COUNT = 1 << 20 };
    const bool overlap = strcmp(case_variant(c), "overlap") == 0;
    launch *l = launch_of(s);
    char why[256];
    comm *grads = comm_create(l, s->dev, &(comm_options){.name = "grads"}, why, sizeof why);
    void *stream = device_stream_create(s->dev, STREAM_NORMAL, "grads");
    float *gradient = xcalloc(COUNT, sizeof *gradient);
    launch_barrier(l, "recording");
    if (!grads || !timeline_start(s->dev, why, sizeof why))
        die(EXIT_CODE_FAILURE, "%s", why);
    if (!overlap)
        compute(20e-3);
    comm_all_reduce(grads, gradient, gradient, COUNT, COMM_FP32, COMM_SUM, stream);
    if (overlap)
        compute(100e-3);
    stream_sync(s->dev, stream);
    stream_timeline *t = timeline_stop(s->dev, why, sizeof why);
    if (!t)
        die(EXIT_CODE_FAILURE, "%s", why);
    double origin_s = t->origin_s;
    launch_share(l, "origin", &origin_s, sizeof origin_s, 0);
    timeline_rebase(t, origin_s);
    char *csv_path = xasprintf("%s.csv", case_variant(c)), *json_path = xasprintf("%s.json", case_variant(c));
    if (!timeline_write_csv(csv_path, case_variant(c), launch_rank(l), t) ||
        !timeline_write_chrome(json_path, case_variant(c), launch_rank(l), t))
        die(EXIT_CODE_FAILURE, "%s: %s", csv_path, strerror(errno));
    row_real(w, "exposed_us", timeline_sum(t).exposed_us);
    free(csv_path);
    free(json_path);
    timeline_destroy(t);
    free(gradient);
    device_stream_destroy(s->dev, stream);
    comm_destroy(grads);
}

static void two_ranks_record_a_step(void **state)
{
    (void)state;
#ifndef HAVE_GLOO
    print_message("built without Gloo\n");
    skip();
#endif
    const int code = ranks_run("bench_timeline", "--device cpu --csv rows.csv --ranks 2");
    if (code != 0)
        fail_msg("exit code %d: %s", code, ranks_text("err.txt"));
    static const char *const variants[] = {"naive", "overlap"};
    for (int v = 0; v < 2; v++) {
        char path[32];
        snprintf(path, sizeof path, "%s.csv", variants[v]);
        csv *c = csv_read(path);
        double communication[2] = {0}, exposed[2] = {0}, start[2] = {NAN, NAN};
        for (size_t i = 0; i < c->rows; i++) {
            const int rank = (int)csv_real(c, i, "rank");
            const double us = csv_real(c, i, "end_us") - csv_real(c, i, "start_us");
            start[rank] = fmin(start[rank], csv_real(c, i, "start_us"));
            if (strcmp(csv_cell(c, i, "lane"), "communication") == 0)
                assert_string_equal(csv_cell(c, i, "name"), "all_reduce");
            communication[rank] += strcmp(csv_cell(c, i, "lane"), "communication") == 0 ? us : 0;
            exposed[rank] += strcmp(csv_cell(c, i, "lane"), "exposed") == 0 ? us : 0;
        }
        for (int rank = 0; rank < 2; rank++) {
            assert_true(communication[rank] > 0);
            /* Naive hides nothing; overlapped the collective has a range of 100 ms to hide in. */
            assert_true(v == 0 ? exposed[rank] > 0.99 * communication[rank]
                               : exposed[rank] < 0.5 * communication[rank]);
        }
        assert_true(fabs(start[0] - start[1]) < 50e3); /* one clock, a barrier apart */
        csv_free(c);
        snprintf(path, sizeof path, "%s.json", variants[v]);
        assert_true(is_json(ranks_text(path)));
    }
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/');
    if (strcmp(name ? name + 1 : argv[0], "bench_timeline") == 0) {
        const session_hooks hooks = {.run = record};
        return launch_main(&info, &hooks, argc, argv);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_checker_checks),
        cmocka_unit_test_setup_teardown(rows_say_what_ran, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(the_trace_is_json, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(many_spans_are_joined_and_fit, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(ranks_write_at_once, folder_create, folder_remove),
        cmocka_unit_test_setup_teardown(two_ranks_record_a_step, ranks_enter_folder, ranks_leave_folder),
    };
    return cmocka_run_group_tests_name("timeline_files", tests, NULL, NULL);
}
