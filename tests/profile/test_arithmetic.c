/* SPDX-License-Identifier: MIT */
/* The arithmetic of a profile on planted spans: the eight sums, what ran beside what, windows, gaps of each class,
 * waits of collectives, work by kernel; and that the checker of traces sees what is wrong. */
#include "tests/support/test.h"

#include "common/profile/files.h"
#include "common/profile/idle.h"
#include "common/profile/ranks.h"
#include "common/profile/sweep.h"
#include "common/profile/tables.h"
#include "tests/support/trace.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define assert_near(a, b) assert_true(fabs((a) - (b)) < 1e-6)

enum { COMPUTE = 1 << LANE_COMPUTE, COMM = 1 << LANE_COMMUNICATION, COPY = 1 << LANE_COPY };

static record_span span(double start, double end, record_lane lane)
{
    return (record_span){.start_us = start,
                         .end_us = end,
                         .lane = lane,
                         .stream = 1,
                         .range = -1,
                         .step = -1,
                         .call = -1,
                         .name = "k",
                         .kernel = "k"};
}

/* splitmix64 */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* ---- sweep ---- */

TEST(eight_sums)
{
    const record_span s[] = {span(10, 20, LANE_COMPUTE),       span(20, 30, LANE_COMPUTE),       /* touching */
                             span(12, 14, LANE_COMPUTE),                                         /* nested */
                             span(15, 15, LANE_COPY),                                            /* empty */
                             span(18, 40, LANE_COMMUNICATION), span(18, 40, LANE_COMMUNICATION), /* equal */
                             span(35, 45, LANE_COPY),          span(-5, 2, LANE_COMPUTE),
                             span(90, 130, LANE_COMPUTE)};
    const sweep_sums sums = sweep(s, COUNT(s), 0, 100);
    assert_near(sums.us[COMPUTE], 2 + 8 + 10);
    assert_near(sums.us[COMPUTE | COMM], 12);
    assert_near(sums.us[COMM], 5);
    assert_near(sums.us[COMM | COPY], 5);
    assert_near(sums.us[COPY], 5);
    assert_near(sums.us[0], 8 + 45);
    assert_near(sweep_window_us(&sums), 100);
    assert_near(sweep_exposed_us(&sums), 10);
    assert_near(sweep_lane_us(&sums, LANE_COMMUNICATION), 22);
    assert_near(sweep_copy_alone_us(&sums), 5);
    const sweep_sums none = sweep(s, 0, 3, 7);
    assert_near(none.us[0], 4);
}

/* Against a count of every microsecond. */
TEST(sums_by_counting)
{
    enum { SPANS = 40, LENGTH = 200 };
    for (uint64_t round = 0; round < 200; round++) {
        record_span s[SPANS];
        double want[SWEEP_SETS] = {0}, beside[SPANS], want_beside[SPANS] = {0};
        for (uint64_t i = 0; i < SPANS; i++) {
            const uint64_t r = mix(round * SPANS + i);
            const double start = (double)(r % LENGTH);
            s[i] = span(start, start + (double)(r >> 20 & 15), (record_lane)(r >> 40 & 255) % 3);
        }
        for (int t = 0; t < LENGTH; t++) {
            int set = 0, running = 0;
            for (int i = 0; i < SPANS; i++)
                if (s[i].start_us <= t && t < s[i].end_us)
                    set |= 1 << s[i].lane, running++;
            want[set]++;
            for (int i = 0; i < SPANS; i++)
                want_beside[i] += running > 1 && s[i].start_us <= t && t < s[i].end_us;
        }
        for (int i = 0; i < SPANS; i++) /* what lies behind the length */
            s[i].end_us = fmin(s[i].end_us, LENGTH);
        const sweep_sums got = sweep(s, SPANS, 0, LENGTH);
        sweep_beside(s, SPANS, beside);
        for (int set = 0; set < SWEEP_SETS; set++)
            assert_near(got.us[set], want[set]);
        for (int i = 0; i < SPANS; i++)
            assert_near(beside[i], want_beside[i]);
    }
}

TEST(windows_of_steps)
{
    record_span s[] = {span(5, 9, LANE_COMPUTE), span(10, 20, LANE_COMPUTE), span(18, 33, LANE_COMMUNICATION),
                       span(30, 45, LANE_COMPUTE), span(50, 60, LANE_COMPUTE)};
    const int steps[] = {-1, 0, 0, 1, 2};
    for (size_t i = 0; i < COUNT(s); i++)
        s[i].step = steps[i];
    const recording r = {.spans = s, .span_count = COUNT(s)};
    record_window w[5];
    assert_int_equal(record_windows(&r, w, 5), 2); /* the third has no end */
    assert_near(w[0].from_us, 10);
    assert_near(w[0].to_us, 30);
    assert_near(w[1].to_us, 50);
    assert_int_equal(record_windows(&r, w, 1), 1);
    size_t n;
    record_span *cut = record_cut(&r, w[0], &n);
    assert_int_equal(n, 2);
    assert_near(cut[1].end_us, 30); /* it goes on in the next one */
    free(cut);
    record_window second[2];
    record_windows(&r, second, 2);
    cut = record_cut(&r, second[1], &n);
    assert_int_equal(n, 2);
    assert_near(cut[0].start_us, 30);
    assert_near(cut[0].end_us, 33);
    free(cut);
}

/* A norm that was launched early waits for a product, then for what that one's successor does; another stream does not. */
TEST(what_starts_early_waits)
{
    record_span s[] = {span(0, 50, LANE_COMPUTE), span(5, 60, LANE_COMPUTE), span(6, 70, LANE_COMPUTE),
                       span(10, 40, LANE_COMPUTE)};
    const double want[][2] = {{0, 50}, {10, 40}, {50, 60}, {60, 70}};
    for (size_t i = 0; i < COUNT(s); i++)
        s[i].kind = RECORD_KERNEL, s[i].stream = i == 3;
    sweep_charge(s, COUNT(s));
    for (size_t i = 0; i < COUNT(s); i++) {
        assert_near(s[i].start_us, want[i][0]);
        assert_near(s[i].end_us, want[i][1]);
    }
}

TEST(the_rest_of_a_recording)
{
    record_span s[] = {span(0, 100, LANE_COMPUTE), span(40, 300, LANE_COMMUNICATION), span(120, 220, LANE_COMPUTE),
                       span(400, 410, LANE_COMPUTE)};
    const recording r = {.spans = s, .span_count = COUNT(s)};
    record_window w;
    assert_true(record_rest(&r, 110, &w)); /* inside the second, which is cut */
    assert_near(w.from_us, 110);
    assert_near(w.to_us, 410);
    assert_true(record_rest(&r, 350, &w)); /* before the next */
    assert_near(w.from_us, 400);
    assert_false(record_rest(&r, 410, &w));
}

TEST(times_of_another_host)
{
    record_span s[] = {span(1e6, 1e6 + 10, LANE_COMPUTE)};
    record_call calls[] = {{.start_us = 1e6 - 5, .end_us = 1e6 - 3}};
    record_range ranges[] = {{.start_us = 1e6 - 9, .end_us = NAN}};
    recording r = {.spans = s, .span_count = 1, .calls = calls, .call_count = 1, .ranges = ranges, .range_count = 1};
    const host_clock ahead = {.at_s = 1, .offset_s = 2e-3, .drift = 0};
    recording_move(&r, &ahead);
    assert_near(s[0].start_us, 1e6 + 2000);
    assert_near(calls[0].end_us, 1e6 + 1997);
    assert_near(ranges[0].start_us, 1e6 + 1991);
    assert_true(isnan(ranges[0].end_us)); /* still open */
}

/* ---- gaps ---- */

typedef struct gap_case {
    const char *what;
    record_span before, next; /* without a name, before is `first` */
    record_call call, other;  /* of next; another one, such as a wait */
    record_cost cost;
    idle_part want[3];
} gap_case;

static record_span on(record_span s, int stream, int call)
{
    s.stream = stream, s.call = call;
    return s;
}

static record_span in(record_span s, int range, uint64_t node)
{
    s.range = range, s.node = node;
    return s;
}

TEST(each_class_of_gap)
{
    const idle_limits limits = {.launch_us = 4, .node_us = 0.5, .kernel_us = 1};
    static const record_range ranges[] = {{.name = "step", .path = "", .parent = -1, .start_us = 0, .end_us = 200},
                                          {.name = "norm", .path = "norm", .parent = 0, .start_us = 22, .end_us = 60}};
    const record_span first = on(span(0, 20, LANE_COMPUTE), 1, -1);
    const gap_case cases[] = {
        {.what = "the host came late",
         .next = on(span(54, 60, LANE_COMPUTE), 1, 0),
         .call = {45, 50, "cudaLaunchKernel", 1, 0, -1},
         .want = {{IDLE_HOST, 20, 45, "norm", "k", "k"}, {IDLE_LAUNCH, 45, 54, "", "k", "k"}}},
        {.what = "the host waited",
         .next = on(span(54, 60, LANE_COMPUTE), 1, 0),
         .call = {45, 50, "cudaLaunchKernel", 1, 0, -1},
         .other = {2, 42, "cudaStreamSynchronize", 2, 0, -1},
         .want = {{IDLE_HOST, 20, 45, "cudaStreamSynchronize", "k", "k"}, {IDLE_LAUNCH, 45, 54, "", "k", "k"}}},
        {.what = "nodes of a graph follow each other",
         .next = in(on(span(20.4, 60, LANE_COMPUTE), 1, 0), -1, 9),
         .call = {1, 3, "cudaGraphLaunch", 1, 0, -1},
         .want = {{IDLE_NODE, 20, 20.4, "", "k", "k"}}},
        {.what = "a node that comes late",
         .next = in(on(span(20.8, 60, LANE_COMPUTE), 1, 0), -1, 9),
         .call = {1, 3, "cudaGraphLaunch", 1, 0, -1},
         .want = {{IDLE_UNKNOWN, 20, 20.8, "", "k", "k"}}},
        {.what = "kernels follow each other",
         .next = on(span(20.8, 60, LANE_COMPUTE), 1, 0),
         .call = {1, 3, "cudaGraphLaunch", 1, 0, -1},
         .want = {{IDLE_NODE, 20, 20.8, "", "k", "k"}}},
        {.what = "the next graph begins",
         .before = on(span(0, 20, LANE_COMPUTE), 2, 1),
         .next = in(on(span(30, 60, LANE_COMPUTE), 1, 0), -1, 9),
         .call = {1, 3, "cudaGraphLaunch", 1, 0, -1},
         .want = {{IDLE_GRAPH, 20, 30, "", "k", "k"}}},
        {.what = "another stream was waited for",
         .next = on(span(30, 60, LANE_COMPUTE), 2, 0),
         .call = {1, 3, "cudaGraphLaunch", 1, 0, -1},
         .want = {{IDLE_DEPENDENCY, 20, 30, "", "k", "k"}}},
        {.what = "nobody knows",
         .next = on(span(30, 60, LANE_COMPUTE), 1, 0),
         .call = {1, 3, "cudaGraphLaunch", 1, 0, -1},
         .want = {{IDLE_UNKNOWN, 20, 30, "", "k", "k"}}},
        {.what = "the profiler",
         .next = on(span(30, 60, LANE_COMPUTE), 1, 0),
         .call = {1, 3, "cudaGraphLaunch", 1, 0, -1},
         .cost = {22, 25, "buffer flush"},
         .want = {{IDLE_UNKNOWN, 20, 22, "", "k", "k"},
                  {IDLE_PROFILER, 22, 25, "buffer flush", "k", "k"},
                  {IDLE_UNKNOWN, 25, 30, "", "k", "k"}}},
        {.what = "no call is known",
         .next = span(30, 60, LANE_COMPUTE),
         .want = {{IDLE_UNKNOWN, 20, 30, "", "k", "k"}}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const gap_case *c = &cases[i];
        record_span spans[] = {c->before.name ? c->before : first, c->next};
        record_call calls[] = {c->other.name ? c->other : c->call, c->call}; /* by start */
        spans[1].call += c->other.name && spans[1].call >= 0;
        record_cost costs[] = {c->cost};
        const recording r = {.spans = spans,
                             .span_count = 2,
                             .calls = calls,
                             .call_count = c->other.name  ? 2
                                           : c->call.name ? 1
                                                          : 0,
                             .costs = costs,
                             .cost_count = c->cost.name ? 1 : 0,
                             .ranges = (record_range *)ranges,
                             .range_count = 2};
        size_t n;
        double sum = 0;
        OWNED idle_part *got = idle_parts(&r, (record_window){0, 60}, limits, &n);
        for (size_t k = 0; k < n; k++) {
            if (got[k].class != c->want[k].class || fabs(got[k].start_us - c->want[k].start_us) > 1e-9 ||
                fabs(got[k].end_us - c->want[k].end_us) > 1e-9 || strcmp(got[k].host_in, c->want[k].host_in) != 0)
                fail_msg("%s: part %zu is %s %g..%g in '%s'", c->what, k, idle_class_name(got[k].class),
                         got[k].start_us, got[k].end_us, got[k].host_in);
            sum += got[k].end_us - got[k].start_us;
        }
        assert_true(n > 0 && (n == 3 || c->want[n].end_us == 0));
        assert_near(sum, c->next.start_us - 20);
    }
}

/* On random spans and calls the parts are what the sweep calls idle. */
TEST(parts_add_up)
{
    enum { SPANS = 30 };
    for (uint64_t round = 0; round < 100; round++) {
        record_span s[SPANS];
        record_call calls[SPANS];
        record_cost costs[3] = {{40, 60, "a"}, {100, 101, "b"}, {150, 152, "c"}};
        double at = 0;
        for (uint64_t i = 0; i < SPANS; i++) {
            const uint64_t r = mix(round * SPANS + i);
            at += (double)(r % 20);
            s[i] = span(at, at + (double)(r >> 20 & 15), (record_lane)(r >> 40 & 255) % 3);
            s[i].call = r >> 50 & 1 ? (int)i : -1;
            s[i].stream = (int)(r >> 51 & 3);
            calls[i] = (record_call){at - (double)(r >> 55 & 31), at - (double)(r >> 55 & 31) + 2, "call", 0, 0, -1};
        }
        const recording r = {
            .spans = s, .span_count = SPANS, .calls = calls, .call_count = SPANS, .costs = costs, .cost_count = 3};
        const record_window w = {7, 180};
        size_t n;
        double sum = 0, last = -INFINITY;
        OWNED idle_part *p = idle_parts(&r, w, (idle_limits){2, 1, 1}, &n);
        for (size_t i = 0; i < n; i++) {
            assert_true(p[i].start_us >= last && p[i].end_us > p[i].start_us);
            last = p[i].end_us;
            sum += p[i].end_us - p[i].start_us;
        }
        assert_near(sum, sweep(s, SPANS, w.from_us, w.to_us).us[0]);
    }
}

/* ---- ranks ---- */

TEST(waits_and_transfers)
{
    rank_collective all[] = {{"all_reduce", 1e6, 10, 100},
                             {"broadcast", 100, 200, 205}, /* rank 0 */
                             {"all_reduce", 1e6, 60, 102},
                             {"broadcast", 100, 300, 310}};
    collective_times t[4];
    char why[256];
    assert_true(ranks_times(all, 2, 2, 0, t, why, sizeof why));
    assert_near(t[0].wait_us, 50);
    assert_near(t[0].transfer_us, 40);
    assert_int_equal(t[0].late_rank, 1);
    assert_near(t[2].wait_us, 0);
    assert_near(t[2].transfer_us, 40);
    assert_near(t[1].wait_us, 100);
    assert_near(t[1].transfer_us, 0); /* the root was done before */
    /* A clock that is 1 ms off. */
    rank_collective off[] = {all[0], all[1], all[2], all[3]};
    off[2].start_us += 1000, off[2].end_us += 1000;
    assert_false(ranks_times(off, 2, 2, 20, t, why, sizeof why));
    assert_non_null(strstr(why, "960.0 us"));
    assert_true(ranks_times(off, 2, 2, 1000, t, why, sizeof why));
    assert_true(ranks_times(off, 2, 2, NAN, t, why, sizeof why)); /* nobody knows how far clocks are off */
    strcpy(off[3].op, "barrier");
    assert_false(ranks_times(off, 2, 2, 1000, t, why, sizeof why));
    assert_string_equal(why, "collective 1 is broadcast on rank 0 and barrier on rank 1");
    assert_near(profile_bus_factor("all_reduce", 4), 1.5);
    assert_near(profile_bus_factor("send_recv", 4), 0);
}

/* ---- tables ---- */

static double thousand(void *user, const char *dtype) /* TFLOP/s: 1 us a GFLOP */
{
    (void)user;
    return strcmp(dtype, "bf16") == 0 ? 1000 : NAN;
}

static record_range op(int parent, const char *path, const char *name, double flops, double bytes, bool part)
{
    return (record_range){.name = name,
                          .path = path,
                          .parent = parent,
                          .work = {.op = part ? "attention forward" : name,
                                   .dtype = flops > 0 ? "bf16" : NULL,
                                   .flops = flops,
                                   .bytes = bytes,
                                   .part = part}};
}

TEST(work_by_kernel)
{
    record_range ranges[] = {{.name = "forward", .path = "forward", .parent = -1},
                             op(0, "forward", "matmul", 30e9, 1e6, false),    /* 30 us ideal; two kernels */
                             op(0, "forward", "norm forward", 0, 8e6, false), /* 8 us ideal */
                             op(-1, "backward", "matmul", 10e9, 1e6, false),  /* 10 us, in a graph that ran twice */
                             op(-1, "optimizer", "AdamW", 0, 20e6, false),    /* 20 us */
                             op(0, "forward", "attention forward", 1e9, 1e6, false), /* parts have their own */
                             op(5, "forward/scores", "scores", 4e9, 1e6, true),
                             op(5, "forward/softmax", "softmax", 1e6, 6e6, true),
                             op(5, "forward/value", "value", 4e9, 1e6, true),
                             op(-1, "backward", "all_reduce", 0, 1e6, false)};
    record_span s[] = {in(span(0, 40, LANE_COMPUTE), 1, 0),         in(span(40, 50, LANE_COMPUTE), 1, 0),
                       in(span(44, 66, LANE_COMPUTE), 2, 0),        in(span(70, 90, LANE_COMPUTE), 3, 7),
                       in(span(95, 115, LANE_COMPUTE), 3, 7),       in(span(115, 155, LANE_COMPUTE), 4, 0),
                       in(span(155, 160, LANE_COMPUTE), 6, 0),      in(span(160, 172, LANE_COMPUTE), 7, 0),
                       in(span(172, 180, LANE_COMPUTE), 8, 0),      span(180, 190, LANE_COMPUTE),
                       in(span(100, 200, LANE_COMMUNICATION), 9, 0)};
    s[1].kernel = "reduce"; /* beside which the norm starts early, and waits */
    const recording r = {.spans = s, .span_count = COUNT(s), .ranges = ranges, .range_count = COUNT(ranges)};
    const profile_ceilings c = {.copy_gb_s = 1000, .tflops = thousand};
    profile_tables *t = profile_tables_of(&r, (record_window){0, 200}, &c);
    double total = 0;
    for (size_t i = 0; i < t->kernel_count; i++) {
        const kernel_row *k = &t->kernels[i];
        total += k->total_us;
        if (i && !isnan(kernel_lost_us(k)))
            assert_true(kernel_lost_us(k) <= kernel_lost_us(k - 1));
        if (strcmp(k->range, "forward") == 0 && strcmp(k->op, "matmul") == 0) { /* 4:1 of the time, of the work, too */
            assert_near(k->flops, strcmp(k->kernel, "reduce") == 0 ? 6e9 : 24e9);
            assert_near(kernel_attained_pct(k), 60);
            assert_string_equal(kernel_bound(k), "compute");
        } else if (strcmp(k->range, "backward") == 0 && k->lane == LANE_COMPUTE) {
            assert_int_equal(k->calls, 2);
            assert_near(k->ideal_us, 20);
            assert_near(kernel_attained_pct(k), 50);
            assert_near(k->beside_us, 15);
        } else if (strcmp(k->op, "AdamW") == 0) {
            assert_string_equal(kernel_bound(k), "memory");
            assert_near(kernel_lost_us(k), 20);
        } else if (strcmp(k->range, "unattributed") == 0 || k->lane == LANE_COMMUNICATION) {
            assert_true(isnan(kernel_attained_pct(k)));
            assert_string_equal(kernel_bound(k), "");
        }
    }
    assert_near(total, t->kernel_us);
    assert_near(t->kernel_us - t->attributed_us, 10);
    assert_near(sweep_window_us(&t->sums), 200);
    assert_int_equal(t->product_count, 3);
    assert_near(t->products[0].gemm_us, 50 + 5 + 8);
    assert_near(t->products[0].other_us, 16 + 12 + 10);
    assert_near(t->products[1].gemm_us, 63 + 40);
    assert_near(t->products[2].other_us, 38 + 40);
    assert_near(t->products[2].idle_us, 4 + 5);
    assert_int_equal(t->softmax_count, 1);
    assert_near(t->softmax[0].us[PART_SOFTMAX], 12);
    assert_near(t->softmax[0].flops[PART_SCORES] + t->softmax[0].flops[PART_VALUE], 8e9);
    assert_near(t->softmax[0].us[PART_WHOLE], 0);
    profile_tables_free(t);
}

/* Packed documents: their bytes are known, their FLOPs are not, so nothing is said of what they attain. */
TEST(unknown_work)
{
    record_range range = op(-1, "forward", "attention forward", 1, 8e6, false);
    range.work.flops = NAN;
    record_span s = in(span(0, 40, LANE_COMPUTE), 0, 0);
    const recording r = {.spans = &s, .span_count = 1, .ranges = &range, .range_count = 1};
    const profile_ceilings c = {.copy_gb_s = 1000, .tflops = thousand};
    profile_tables *t = profile_tables_of(&r, (record_window){0, 40}, &c);
    assert_int_equal(t->kernel_count, 1);
    assert_true(isnan(t->kernels[0].flops));
    assert_near(t->kernels[0].bytes, 8e6);
    assert_true(isnan(kernel_attained_pct(&t->kernels[0])));
    assert_string_equal(kernel_bound(&t->kernels[0]), "");
    profile_tables_free(t);
}

/* ---- the checker of traces ---- */

TEST(the_checker_checks)
{
    static const char head[] = "{\"baseTimeNanoseconds\":5,\"traceEvents\":[";
    static const char name[] = "{\"ph\":\"M\",\"pid\":0,\"tid\":1,\"name\":\"thread_name\",\"args\":{\"name\":\"x\"}}";
    static const char kernel[] =
        "{\"ph\":\"X\",\"pid\":0,\"tid\":1,\"ts\":%s,\"dur\":%s,\"cat\":\"kernel\",\"name\":\"k\","
        "\"args\":{\"stream\":7,\"correlation\":1,\"graph node id\":0}}";
    static const struct {
        const char *first[2], *second[2], *more, *why;
    } cases[] = {
        {{"0", "10"}, {"10", "5"}, "", NULL},
        {{"0", "10"}, {"2", "8"}, "", NULL},
        {{"0", "10"}, {"2", "8.001"}, "", "ends behind it"},
        {{"-1", "10"}, {"20", "8"}, "", "has no time"},
        {{"0", "10"}, {"20", "-8"}, "", "lacks a time"},
        {{"0", "1"},
         {"2", "1"},
         ",{\"ph\":\"X\",\"pid\":0,\"tid\":1,\"ts\":9,\"dur\":1,\"cat\":\"kernel\",\"name\":\"k\",\"args\":{}}",
         "lacks its stream"},
        {{"0", "1"}, {"2", "1"}, ",{\"ph\":\"s\",\"id\":3,\"pid\":0,\"tid\":1,\"ts\":1}", "arrow 3"},
        {{"0", "1"},
         {"2", "1"},
         ",{\"ph\":\"s\",\"id\":3,\"pid\":0,\"tid\":1,\"ts\":1},{\"ph\":\"f\",\"id\":3,\"pid\":0,\"tid\":1,\"ts\":2}",
         NULL},
        {{"0", "1"},
         {"2", "1"},
         ",{\"ph\":\"s\",\"id\":3,\"pid\":0,\"tid\":1,\"ts\":2},{\"ph\":\"f\",\"id\":3,\"pid\":0,\"tid\":1,\"ts\":1}",
         "arrow 3"},
        {{"0", "1"}, {"2", "1"}, ",{\"ph\":\"B\",\"pid\":0,\"tid\":1,\"ts\":1}", "the kind 'B'"},
        {{"0", "1"},
         {"2", "1"},
         ",{\"ph\":\"X\",\"pid\":0,\"tid\":2,\"ts\":1,\"dur\":1,\"cat\":\"cpu_op\",\"name\":\"k\",\"args\":{}}",
         "thread 2"},
        {{"0", "1"}, {"2", "1"}, ",", "no JSON"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char a[256], b[256], text[2048], why[256] = "";
        trace_summary s;
        snprintf(a, sizeof a, kernel, cases[i].first[0], cases[i].first[1]);
        snprintf(b, sizeof b, kernel, cases[i].second[0], cases[i].second[1]);
        snprintf(text, sizeof text, "%s%s,%s,%s%s]}", head, name, a, b, cases[i].more);
        const bool ok = trace_check(text, &s, why, sizeof why);
        if (ok != !cases[i].why || (cases[i].why && !strstr(why, cases[i].why)))
            fail_msg("case %zu: %s", i, why);
    }
}
