/* SPDX-License-Identifier: MIT */
/* Timelines of streams: the arithmetic of intervals, names of kernels, and what is recorded on the CPU. */
#include "tests/support/test.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/core/clock.h"
#include "common/core/rng.h"
#include "common/device/internal.h"
#include "common/profile/nvtx.h"
#include "common/profile/cupti.h"
#include "common/profile/intervals.h"
#include "common/profile/names.h"
#include "common/profile/timeline.h"
#include "tests/support/streams.h"

#define SPAN(lane, start, end)                                                                                         \
    {                                                                                                                  \
        start, end, 1, lane, "x"                                                                                       \
    }
#define COUNT(a) (sizeof(a) / sizeof *(a))

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) < 1e-6))
        fail_msg("%.9g, not %.9g", got, want);
}

/* ---- arithmetic ---- */

static void sums_count_what_runs_twice_once(void **state)
{
    (void)state;
    timed_span spans[] = {
        SPAN(LANE_COMPUTE, 0, 10),        SPAN(LANE_COMPUTE, 5, 12), /* overlap: 0 to 12 */
        SPAN(LANE_COMMUNICATION, 8, 20),                             /* 4 hidden, 5 exposed, 3 hidden */
        SPAN(LANE_COMMUNICATION, 9, 11),                             /* inside the one before */
        SPAN(LANE_COMPUTE, 17, 30),       SPAN(LANE_COPY, 29, 34),
        SPAN(LANE_COMMUNICATION, 40, 44), SPAN(LANE_COMMUNICATION, 44, 50), /* touches: no gap */
        SPAN(LANE_COMPUTE, 60, 60),                                         /* empty */
    };
    const timeline_sums s = timeline_sum(&(stream_timeline){spans, COUNT(spans), 0});
    assert_near(s.total_us, 60);
    assert_near(s.compute_us, 25);
    assert_near(s.communication_us, 22);
    assert_near(s.hidden_us, 7);
    assert_near(s.exposed_us, 15);
    assert_near(s.copy_us, 5);
    assert_near(s.idle_us, 16); /* 34 to 40, 50 to 60 */
    assert_near(timeline_sum(&(stream_timeline){NULL, 0, 0}).total_us, 0);
}

static uint32_t draw(int round, size_t i)
{
    return (uint32_t)(rng_uniform(7, (uint32_t)round, i) * 4294967296.0);
}

/* Against a count over a grid of unit cells. */
static void sums_agree_with_a_grid(void **state)
{
    (void)state;
    enum { CELLS = 400, MOST = 60 };
    for (int round = 0; round < 300; round++) {
        timed_span spans[MOST];
        bool on[3][CELLS] = {{false}};
        const size_t n = 1 + draw(round, 0) % MOST;
        size_t end = 0, first = CELLS;
        for (size_t i = 0; i < n; i++) {
            const uint32_t r = draw(round, i + 1);
            const size_t start = r % (CELLS - 40), length = r / 512 % 40, lane = r / 65536 % 3;
            spans[i] = (timed_span){(double)start, (double)(start + length), 1, (timeline_lane)lane, "x"};
            for (size_t k = start; k < start + length; k++)
                on[lane][k] = true;
            end = start + length > end ? start + length : end;
            first = start < first ? start : first;
        }
        span_list sorted = {spans, n, n};
        span_list_sort(&sorted);
        timeline_sums want = {.total_us = (double)(end - first)};
        for (size_t k = first; k < end; k++) {
            const bool *const cell[3] = {&on[0][k], &on[1][k], &on[2][k]};
            want.compute_us += *cell[0];
            want.communication_us += *cell[1];
            want.copy_us += *cell[2];
            want.hidden_us += *cell[1] && *cell[0];
            want.exposed_us += *cell[1] && !*cell[0];
            want.idle_us += !*cell[0] && !*cell[1] && !*cell[2];
        }
        const timeline_sums got = timeline_sum(&(stream_timeline){spans, n, 0});
        assert_near(got.total_us, want.total_us);
        assert_near(got.compute_us, want.compute_us);
        assert_near(got.communication_us, want.communication_us);
        assert_near(got.copy_us, want.copy_us);
        assert_near(got.hidden_us, want.hidden_us);
        assert_near(got.exposed_us, want.exposed_us);
        assert_near(got.idle_us, want.idle_us);
    }
}

/* A clock 1 ms ahead of rank 0's, 50 ppm fast, asked over a way that is slower there than back: the best question decides,
 * and what it says is off by less than half of its round trip. */
static void clocks_of_hosts_are_put_right(void **state)
{
    (void)state;
    const double ahead_s = 1e-3, fast = 50e-6;
    clock_reading best[2] = {clock_reading_none(), clock_reading_none()};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 200; i++) {
            const double out_s = 30e-6 + 40e-6 * rng_uniform(7, 0, (uint64_t)i), back_s = 20e-6;
            const double true_s = 100.0 * k + 1e-3 * i, own_s = true_s * (1 + fast) + ahead_s;
            clock_reading_add(&best[k], own_s, true_s + out_s, own_s + (out_s + back_s) * (1 + fast));
        }
    const host_clock c = host_clock_of(&best[0], &best[1]);
    assert_true(c.err_us > 25 && c.err_us < 26);
    for (double true_s = 0; true_s < 100; true_s += 7) {
        const double off_us = 1e6 * (host_clock_rank_0_s(&c, true_s * (1 + fast) + ahead_s) - true_s);
        assert_true(fabs(off_us) < c.err_us);
        assert_true(fabs(off_us - 5) < 0.5); /* half of what one way takes longer than the other */
    }
    timed_span spans[] = {SPAN(LANE_COMPUTE, 0, 1e6), SPAN(LANE_COMPUTE, 2e6, 2.000001e6)};
    stream_timeline t = {spans, COUNT(spans), 50 * (1 + fast) + ahead_s};
    timeline_to_rank_0(&t, &c);
    assert_true(fabs(t.origin_s - 50) < c.err_us * 1e-6);
    assert_true(fabs(spans[0].end_us - 1e6 / (1 + fast)) < 0.1);
    assert_true(fabs(spans[1].start_us - 2e6 / (1 + fast)) < 0.1);

    const clock_reading own = {.at_s = 5}, later = {.at_s = 6};
    const host_clock same = host_clock_of(&own, &later), at_once = host_clock_of(&own, &own);
    assert_true(same.err_us == 0 && host_clock_rank_0_s(&same, 77.5) == 77.5);
    assert_true(host_clock_rank_0_s(&at_once, 77.5) == 77.5);
}

static void keeping_cuts_and_rebasing_moves(void **state)
{
    (void)state;
    const timed_span spans[] = {SPAN(LANE_COMPUTE, 0, 100), SPAN(LANE_COMMUNICATION, 40, 300),
                                SPAN(LANE_COMPUTE, 120, 220), SPAN(LANE_COMPUTE, 400, 500)};
    stream_timeline *t = calloc(1, sizeof *t);
    *t = (stream_timeline){malloc(sizeof spans), COUNT(spans), 5};
    memcpy(t->spans, spans, sizeof spans);
    timeline_keep(t, 5 + 110e-6, 5 + 250e-6);
    assert_int_equal(t->n, 2);
    assert_int_equal(t->spans[0].lane, LANE_COMMUNICATION);
    assert_near(t->spans[0].start_us, 0);
    assert_near(t->spans[0].end_us, 140);
    assert_near(t->spans[1].start_us, 10);
    assert_near(t->origin_s, 5 + 110e-6);
    timeline_rebase(t, 5);
    assert_near(t->spans[0].start_us, 110);
    timeline_keep(t, 9, INFINITY);
    assert_int_equal(t->n, 0);
    timeline_destroy(t);
    timeline_destroy(NULL);
}

/* ---- names ---- */

static void kernels_have_short_names(void **state)
{
    (void)state;
    static const struct {
        const char *kernel, *name;
        timeline_lane lane;
    } cases[] = {
        {"_Z40ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE", "all_reduce",
         LANE_COMMUNICATION},
        {"ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter",
         LANE_COMMUNICATION},
        {"_Z31ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE", "all_gather", LANE_COMMUNICATION},
        {"ncclDevKernel_Broadcast_RING_LL", "broadcast", LANE_COMMUNICATION},
        {"ncclDevKernel_SendRecv", "send_recv", LANE_COMMUNICATION},
        {"ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce", LANE_COMMUNICATION},
        {"ncclSomethingNew", "ncclSomethingNew", LANE_COMMUNICATION},
        {"_ZN44_GLOBAL__N__2b4441d7_12_peer_copy_cu_4720e4b22peer_all_reduce_kernelIfEEvPT_", "all_reduce",
         LANE_COMMUNICATION},
        {"_ZN51_GLOBAL__N__2b4441d7_18_peer_all_reduce_cu_4720e4bd15one_shot_kernelILi2EEEvNS_9argumentsE",
         "all_reduce", LANE_COMMUNICATION},
        {"_ZN40_GLOBAL__N__2b4441d7_8_adamw_cu_4720e4bd12adamw_kernelI6__halfffL9sb_master0EEEvNS_7streamsE", "adamw",
         LANE_COMPUTE},
        {"void (anonymous namespace)::adamw_kernel<float, 4>(int)", "adamw", LANE_COMPUTE},
        {"_ZN12flash_hopper13flash_forwardI13__nv_bfloat16Li1ELi64EEEvNS_14forward_paramsE", "flash forward",
         LANE_COMPUTE},
        {"_ZN12flash_hopper22flash_backward_prepareI6__halfEEvNS_14prepare_paramsE", "flash backward", LANE_COMPUTE},
        {"_ZN14flash_portable7forwardINS_4tf32ELi16EEEv12sb_attention", "flash forward", LANE_COMPUTE},
        {"_ZN14flash_portable9row_statsIfEEv12sb_attention", "flash backward", LANE_COMPUTE},
        {"_ZN7cutlass7Kernel2I57cutlass_80_tensorop_s16816gemm_bf16_256x64_32x4_tn_align8EEvNT_6ParamsE", "gemm",
         LANE_COMPUTE},
        {"nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT", "gemm", LANE_COMPUTE},
        {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tt_n_tilesize64x128x64", "gemm", LANE_COMPUTE},
        {"_ZN8cublasLt19splitKreduce_kernelILi32ELi16EiEEvNS_18cublasSplitKParamsIT_EE", "gemm", LANE_COMPUTE},
        {"_ZN11matmul_fp3218matmul_fp32_kernelILb0ELb0EEEvNS_6paramsE", "gemm", LANE_COMPUTE},
        {"_ZN43_GLOBAL__N__1dd81297_10_rmsnorm_cu_3c14e01d22rmsnorm_forward_kernelIffLb0EEEv10sb_rmsnormf",
         "rmsnorm_forward", LANE_COMPUTE},
        {"_Z16token_bin_kernelPKii10token_sort", "token_bin", LANE_COMPUTE},
        {"_ZL11rope_kernelPf", "rope", LANE_COMPUTE},
        {"_Z99short", "_Z99short", LANE_COMPUTE},
        {"_Z", "_Z", LANE_COMPUTE},
        {"", "", LANE_COMPUTE},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *name = NULL;
        assert_int_equal(timeline_classify(cases[i].kernel, &name), cases[i].lane);
        assert_string_equal(name, cases[i].name);
    }
}

/* ---- recording on the CPU ---- */

static device *cpu;

static int open_cpu(void **state)
{
    (void)state;
    cpu = device_open(DEVICE_CPU, 0);
    return 0;
}

static int close_cpu(void **state)
{
    (void)state;
    device_close(cpu);
    return 0;
}

static void start(void)
{
    char why[256];
    if (!timeline_start(cpu, why, sizeof why))
        fail_msg("%s", why);
}

static stream_timeline *stop(void)
{
    char why[256];
    stream_timeline *t = timeline_stop(cpu, why, sizeof why);
    if (!t)
        fail_msg("%s", why);
    return t;
}

static void work(const char *name, unsigned us)
{
    range_push(name);
    usleep(us);
    range_pop();
}

static void ranges_inside_a_recording_are_spans(void **state)
{
    (void)state;
    work("before", 0);
    range_push("begun before");
    start();
    range_pop();
    range_push("outer");
    work("inner", 1000);
    range_pop();
    range_push("not over");
    stream_timeline *t = stop();
    range_pop();
    work("after", 0);
    assert_int_equal(t->n, 2);
    assert_string_equal(t->spans[0].name, "outer");
    assert_string_equal(t->spans[1].name, "inner");
    assert_true(t->spans[0].start_us == 0 && t->spans[0].end_us >= t->spans[1].end_us);
    assert_true(t->spans[1].end_us - t->spans[1].start_us >= 1000);
    assert_int_equal(t->spans[0].stream, t->spans[1].stream);
    assert_true(fabs(t->origin_s - host_seconds()) < 60);
    timeline_destroy(t);

    start(); /* what the earlier recording left open is no span of this one */
    work("second", 0);
    t = stop();
    assert_int_equal(t->n, 1);
    timeline_destroy(t);
    range_pop(); /* one more than was pushed */
}

static void deep_ranges_keep_the_balance(void **state)
{
    (void)state;
    start();
    for (int i = 0; i < 40; i++)
        range_push("deep");
    for (int i = 0; i < 40; i++)
        range_pop();
    work("flat", 0);
    stream_timeline *t = stop();
    assert_int_equal(t->n, 33);
    timeline_destroy(t);
}

static void a_thread_does_one_thing_at_a_time(void **state)
{
    (void)state;
    start();
    range_push("backward");
    const double s = host_seconds();
    timeline_span(LANE_COMMUNICATION, "all_reduce", s + 1e-3, s + 3e-3); /* by this thread, inside the range */
    timeline_span(LANE_WAIT, "wait", s + 5e-3, s + 6e-3);
    while (host_seconds() < s + 10e-3)
        usleep(500);
    range_pop();
    stream_timeline *t = stop();
    const timeline_sums sums = timeline_sum(t);
    assert_int_equal(t->n, 4); /* three pieces of the range */
    assert_near(sums.hidden_us, 0);
    assert_true(fabs(sums.exposed_us - 2000) < 1);
    assert_true(fabs(sums.total_us - sums.compute_us - 3000) < 1);
    timeline_destroy(t);
}

typedef struct collective {
    double start_s, end_s;
} collective;

/* As a backend does it on a stream's thread. */
static void communicate(void *arg)
{
    const collective *c = arg;
    while (host_seconds() < c->end_s)
        usleep(200);
    timeline_span(LANE_COMMUNICATION, "all_reduce", c->start_s, c->end_s);
}

static void streams_show_what_overlaps(void **state)
{
    (void)state;
    void *s = device_stream_create(cpu, STREAM_NORMAL, "comm");
    start();
    const double now = host_seconds();
    device_stream_run(cpu, s, communicate, &(collective){now, now + 40e-3}, sizeof(collective));
    range_push("backward");
    while (host_seconds() < now + 30e-3)
        usleep(200);
    range_pop();
    const double over = host_seconds();
    stream_sync(cpu, s);
    stream_timeline *t = stop();
    const timeline_sums sums = timeline_sum(t);
    assert_int_equal(t->n, 2);
    assert_int_not_equal(t->spans[0].stream, t->spans[1].stream);
    assert_true(fabs(sums.communication_us - 40000) < 1);
    assert_true(sums.hidden_us > 1000 && sums.hidden_us < 1e6 * (over - now) + 1);
    assert_near(sums.hidden_us + sums.exposed_us, sums.communication_us);
    timeline_destroy(t);
    device_stream_destroy(cpu, s);
}

static void *many_spans(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2000; i++)
        work("range", 0);
    return NULL;
}

static void threads_record_at_once(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    start();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, many_spans, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    stream_timeline *t = stop();
    assert_int_equal(t->n, 2000 * THREADS);
    for (size_t i = 1; i < t->n; i++)
        assert_true(t->spans[i - 1].start_us <= t->spans[i].start_us);
    timeline_destroy(t);
}

static void what_can_not_be_recorded_is_said(void **state)
{
    (void)state;
    char why[256] = "";
    assert_null(timeline_stop(cpu, why, sizeof why));
    assert_string_equal(why, "no timeline is being recorded");
    start();
    assert_false(timeline_start(cpu, why, sizeof why));
    assert_string_equal(why, "a timeline is being recorded already");
    assert_null(timeline_stop(cpu, why, sizeof why));
    assert_string_equal(why, "nothing ran while the timeline was recorded");

    if (!device_no_cuda_reason())
        return;
    device absent = {.kind = DEVICE_CUDA};
    *why = '\0';
    assert_false(timeline_start(&absent, why, sizeof why));
    assert_string_equal(why, device_no_cuda_reason());
    *why = '\0';
    assert_false(cupti_start(false, why, sizeof why)); /* past that check, too */
    assert_string_not_equal(why, "");
}

/* ---- recording on a GPU ---- */

/* Twice, and from a graph, too: enough work on one stream that its order can be seen. */
static void a_gpu_records_what_it_ran(void **state)
{
    (void)state;
    if (device_no_cuda_reason()) {
        print_message("%s\n", device_no_cuda_reason());
        skip();
    }
    enum { BYTES = 64 << 20 };
    device *d = device_open(DEVICE_CUDA, 0);
    void *a = device_malloc(d, BYTES), *b = device_malloc(d, BYTES);
    assert_true(device_graph_begin(d));
    device_memset(d, a, 1, BYTES);
    device_copy(d, b, a, BYTES);
    device_graph *graph = device_graph_end(d);
    assert_non_null(graph);
    for (int round = 0; round < 2; round++) {
        char why[256];
        const double before = host_seconds();
        if (!timeline_start(d, why, sizeof why))
            fail_msg("%s", why);
        work("a range of the host is no span here", 0);
        device_memset(d, a, 1, BYTES);
        device_copy(d, b, a, BYTES);
        device_graph_launch(d, graph);
        stream_timeline *t = timeline_stop(d, why, sizeof why);
        const double after = host_seconds();
        if (!t)
            fail_msg("%s", why);
        assert_int_equal(t->n, 4);
        assert_string_equal(t->spans[0].name, "memset");
        assert_string_equal(t->spans[1].name, "copy");
        for (size_t i = 0; i < t->n; i++) {
            assert_int_equal(t->spans[i].lane, LANE_COMPUTE);
            assert_true(t->spans[i].end_us > t->spans[i].start_us);
        }
        const timeline_sums s = timeline_sum(t);
        assert_true(s.compute_us > 0.9 * 4 * BYTES / 10e6 && s.compute_us <= s.total_us); /* 10 TB/s at most */
        assert_true(t->origin_s > before - 1e-3 &&
                    t->origin_s + s.total_us * 1e-6 < after + 1e-3); /* the host's clock */
        timeline_destroy(t);
    }
    device_graph_destroy(d, graph);
    device_free(d, a);
    device_free(d, b);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_count_what_runs_twice_once),  cmocka_unit_test(sums_agree_with_a_grid),
        cmocka_unit_test(clocks_of_hosts_are_put_right),    cmocka_unit_test(keeping_cuts_and_rebasing_moves),
        cmocka_unit_test(kernels_have_short_names),         cmocka_unit_test(ranges_inside_a_recording_are_spans),
        cmocka_unit_test(deep_ranges_keep_the_balance),     cmocka_unit_test(a_thread_does_one_thing_at_a_time),
        cmocka_unit_test(streams_show_what_overlaps),       cmocka_unit_test(threads_record_at_once),
        cmocka_unit_test(what_can_not_be_recorded_is_said), cmocka_unit_test(a_gpu_records_what_it_ran),
    };
    return cmocka_run_group_tests_name("timeline", tests, open_cpu, close_cpu);
}
