/* SPDX-License-Identifier: MIT */
/* The files of --timeline: rows and comments of the CSV, the trace, what is joined, several ranks on one file, and a
 * recording of two ranks over Gloo with communication after compute and beside it. */
#include "tests/support/test.h"

#include <errno.h>
#include <sys/wait.h>

#include "common/profile/files.h"
#include "common/profile/lanes.h"
#include "common/core/clock.h"
#include "common/record/nvtx.h"
#include "common/record/record.h"
#include "common/comm/comm.h"
#include "tests/support/ranks.h"
#include "tests/support/streams.h"
#include "tests/support/trace.h"

/* ---- what is written ---- */

#define SPAN(start, end, of, in, title)                                                                                \
    {                                                                                                                  \
        .start_us = (start), .end_us = (end), .stream = (of), .lane = (in), .name = (title), .kernel = (title),        \
        .range = -1, .call = -1                                                                                        \
    }

enum { BASE = 1000 }; /* time 0 of the files */
static record_span few[] = {
    SPAN(1000, 1010.5, 7, LANE_COMPUTE, "gemm"), SPAN(1005, 1030.25, 21, LANE_COMMUNICATION, "all_reduce"),
    SPAN(1012, 1020, 7, LANE_COMPUTE, "say \"x\", y"), SPAN(1018, 1022, 7, LANE_COMPUTE, "begins early"),
    SPAN(1040, 1041, 7, LANE_COPY, "host to device")};
static const recording small = {.spans = few, .span_count = sizeof few / sizeof *few};
static const record_window all = {1000, 1041};

static int count_of(const char *text, const char *part)
{
    const size_t length = strlen(part);
    int n = 0;
    for (; *text; text++) /* strstr of AddressSanitizer measures the whole text in each call */
        n += strncmp(text, part, length) == 0;
    return n;
}

static trace_summary checked(const char *text)
{
    trace_summary s;
    char why[256];
    if (!trace_check(text, &s, why, sizeof why))
        fail_msg("%s", why);
    return s;
}

TEST_IN_FOLDER(rows_say_what_ran)
{
    OWNED char *path = folder_path(*state, "few.csv");
    assert_true(lanes_write(path, "naive, 2 ranks", 0, &small, all, BASE));
    assert_true(lanes_write(path, "naive, 2 ranks", 1, &small, all, BASE));
    OWNED_CSV csv *c = csv_read(path);
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
    OWNED char *text = file_text(path);
    assert_int_equal(count_of(text, "label,rank,lane,stream,name,start_us,end_us\n"), 1);
    assert_non_null(strstr(text, "# rank 1 of naive, 2 ranks: 0.041 ms; compute 0.021 ms; communication 0.025 ms, "
                                 "of it exposed 0.010 ms; idle 0.010 ms\n"));
    assert_true(lanes_write(path, "naive", 2, &(recording){0}, all, BASE)); /* nothing but a comment */
    errno = 0;
    assert_false(lanes_write("/nowhere/few.csv", "naive", 0, &small, all, BASE));
    assert_int_equal(errno, ENOENT);
}

TEST_IN_FOLDER(the_trace_has_a_thread_a_lane)
{
    OWNED char *path = folder_path(*state, "trace.json");
    assert_true(profile_write_trace(path, "a \"label\"\n", 0, &small, all, BASE));
    char *text = file_text(path);
    checked(text);
    free(text);
    assert_true(profile_write_trace(path, "b", 1, &small, all, BASE));
    text = file_text(path);
    assert_int_equal(checked(text).spans, 10);
    assert_int_equal(count_of(text, "process_name"), 2);
    assert_non_null(strstr(text, "compute, stream 7\""));
    assert_non_null(strstr(text, "compute, stream 7 (2)\"")); /* what begins early has a thread of its own */
    assert_non_null(strstr(text, "communication, stream 21\""));
    assert_non_null(strstr(text, "\"ts\":5.000,\"dur\":25.250,\"cat\":\"kernel\",\"name\":\"all_reduce\""));
    free(text);
    file_write(path, "something else");
    errno = 0;
    assert_false(profile_write_trace(path, "b", 1, &small, all, BASE));
    assert_int_equal(errno, EINVAL);
}

/* 20,000 kernels on 40 streams of a graph with a collective beside some of them, and one that nothing hides. */
TEST_IN_FOLDER(many_spans_are_joined_and_fit)
{
    enum { KERNELS = 20000, COLLECTIVES = 100 };
    OWNED record_span *spans = malloc((KERNELS + COLLECTIVES + 2) * sizeof *spans);
    size_t n = 0;
    for (int i = 0; i < KERNELS; i++) {
        const double start = i * 10.0;
        if (i % 200 == 0)
            spans[n++] = (record_span)SPAN(start, start + 1500, 99, LANE_COMMUNICATION, "all_reduce");
        spans[n++] =
            (record_span)SPAN(start, start + (i % 3 ? 9 : 9.5), i / 50 % 40, LANE_COMPUTE, i % 3 ? "norm" : "gemm");
    }
    spans[n++] = (record_span)SPAN(201000, 203000, 99, LANE_COMMUNICATION, "last");
    spans[n++] = (record_span)SPAN(204000, 208000, 1, LANE_COMPUTE, "adamw");
    const recording r = {.spans = spans, .span_count = n};
    const record_window w = {0, 208000};
    const sweep_sums sums = sweep(spans, n, w.from_us, w.to_us);
    assert_true(sweep_exposed_us(&sums) > 2000);
    char *path = folder_path(*state, "many.csv"), *trace = folder_path(*state, "many.json"), want[200];
    assert_true(lanes_write(path, "graph", 0, &r, w, 0));
    OWNED_CSV csv *c = csv_read(path);
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
        if (csv_is(c, i, "lane", "compute")) {
            assert_string_equal(csv_cell(c, i, "name"), "norm"); /* two of three, in rows of three at least */
            rows_us += csv_real(c, i, "end_us") - csv_real(c, i, "start_us");
        }
    assert_true(fabs(rows_us - sweep_lane_us(&sums, LANE_COMPUTE)) < 1); /* joining closes no gaps */
    char *text = file_text(path);
    snprintf(want, sizeof want, "of it exposed %.3f ms; idle %.3f ms (of %zu spans those within ",
             sweep_exposed_us(&sums) / 1e3, sums.us[0] / 1e3, n);
    assert_non_null(strstr(text, want));
    free(text);
    assert_true(profile_write_trace(trace, "graph", 0, &r, w, 0));
    text = file_text(trace);
    assert_int_equal(checked(text).spans, n);
    assert_int_equal(count_of(text, "thread_name"), 2); /* many streams: a thread a lane */
    free(text);
    free(trace);
    free(path);
}

TEST_IN_FOLDER(ranks_write_at_once)
{
    enum { RANKS = 8, TIMES = 20 };
    OWNED char *path = folder_path(*state, "ranks.csv"), *trace = folder_path(*state, "ranks.json");
    for (int rank = 0; rank < RANKS; rank++)
        if (fork() == 0) {
            bool ok = true;
            for (int i = 0; i < TIMES; i++)
                ok = ok && lanes_write(path, "x", rank, &small, all, BASE) &&
                     profile_write_trace(trace, "x", rank, &small, all, BASE);
            _exit(!ok);
        }
    for (int rank = 0, status; rank < RANKS; rank++) {
        wait(&status);
        assert_int_equal(status, 0);
    }
    OWNED_CSV csv *c = csv_read(path);
    assert_int_equal(c->rows, RANKS * TIMES * 7);
    assert_int_equal(c->dropped, 0);
    OWNED char *text = file_text(trace);
    assert_int_equal(checked(text).spans, RANKS * TIMES * 5);
}

/* ---- two ranks ---- */

static option_spec option_table[] = {LAUNCH_RANKS("2", "2"), {0}};
static const variant_spec variant_table[] = {
    {"naive", "communication after compute"}, {"overlap", "communication beside compute"}, {0}};
static const column_spec column_table[] = {{0}};
static const bench_info info = TOY_BENCH("bench_lanes", "Does communication hide?");

static void compute(double seconds)
{
    const double until = host_seconds() + seconds;
    op_push("backward", &(record_work){.op = "backward"});
    while (host_seconds() < until)
        usleep(100);
    op_pop();
}

static void record(session *s, const bench_case *c, row *w)
{
    (void)w;
    enum { COUNT = 1 << 20 };
    const bool overlap = strcmp(case_variant(c), "overlap") == 0;
    launch *l = launch_of(s);
    char why[256];
    comm *grads = comm_create(l, s->dev, &(comm_options){.name = "grads"}, why, sizeof why);
    void *stream = device_stream_create(s->dev, STREAM_NORMAL, "grads");
    OWNED float *gradient = xcalloc(COUNT, sizeof *gradient);
    launch_barrier(l, "recording");
    if (!grads || !recorder_start_spans(s->dev, why, sizeof why))
        die(EXIT_CODE_FAILURE, "%s", why);
    if (!overlap)
        compute(20e-3);
    comm_all_reduce(grads, gradient, gradient, COUNT, COMM_FP32, COMM_SUM, stream);
    if (overlap)
        compute(100e-3);
    stream_sync(s->dev, stream);
    recording *r = recorder_stop(s->dev, why, sizeof why);
    record_window x;
    if (!r || !record_rest(r, 0, &x))
        die(EXIT_CODE_FAILURE, "%s", why);
    double from_us[2] = {x.from_us, x.from_us};
    for (int rank = 0; rank < 2; rank++)
        launch_share(l, "start", &from_us[rank], sizeof from_us[rank], rank);
    const double base_us = fmin(from_us[0], from_us[1]);
    OWNED char *csv_path = xasprintf("%s.csv", case_variant(c)), *json_path = xasprintf("%s.json", case_variant(c));
    if (!lanes_write(csv_path, case_variant(c), launch_rank(l), r, x, base_us) ||
        !profile_write_trace(json_path, case_variant(c), launch_rank(l), r, x, base_us))
        die(EXIT_CODE_FAILURE, "%s: %s", csv_path, strerror(errno));
    recording_free(r);
    device_stream_destroy(s->dev, stream);
    comm_destroy(grads);
}

TEST_IN_RANKS_FOLDER(two_ranks_record_a_step)
{
    needs_gloo();
    const int code = ranks_run("bench_lanes", "--device cpu --csv rows.csv --ranks 2");
    if (code != 0)
        fail_msg("exit code %d: %s", code, ranks_text("err.txt"));
    static const char *const variants[] = {"naive", "overlap"};
    for (int v = 0; v < 2; v++) {
        char path[32];
        snprintf(path, sizeof path, "%s.csv", variants[v]);
        OWNED_CSV csv *c = csv_read(path);
        double communication[2] = {0}, exposed[2] = {0}, start[2] = {NAN, NAN};
        for (size_t i = 0; i < c->rows; i++) {
            const int rank = (int)csv_real(c, i, "rank");
            const double us = csv_real(c, i, "end_us") - csv_real(c, i, "start_us");
            start[rank] = fmin(start[rank], csv_real(c, i, "start_us"));
            if (csv_is(c, i, "lane", "communication"))
                assert_string_equal(csv_cell(c, i, "name"), "all_reduce");
            communication[rank] += csv_is(c, i, "lane", "communication") ? us : 0;
            exposed[rank] += csv_is(c, i, "lane", "exposed") ? us : 0;
        }
        for (int rank = 0; rank < 2; rank++) {
            assert_true(communication[rank] > 0);
            /* Naive hides nothing; overlapped the collective has a range of 100 ms to hide in. */
            assert_true(v == 0 ? exposed[rank] > 0.99 * communication[rank]
                               : exposed[rank] < 0.5 * communication[rank]);
        }
        assert_true(fabs(start[0] - start[1]) < 50e3); /* one clock, a barrier apart */
        snprintf(path, sizeof path, "%s.json", variants[v]);
        assert_true(checked(ranks_text(path)).ranks == 2);
    }
}

static int lanes_main(int argc, char **argv)
{
    return launch_main(&info, &(session_hooks){.run = record}, argc, argv);
}
PROGRAM("bench_lanes", lanes_main)
