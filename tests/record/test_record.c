/* SPDX-License-Identifier: MIT */
/* The recorder: what a span belongs to, steps, parts of ops, threads, ranges that began too early, spans alone, and clocks
 * of hosts. */
#include "tests/support/test.h"

#include <pthread.h>

#include "common/core/clock.h"
#include "common/core/rng.h"
#include "common/record/cupti.h"
#include "common/record/nvtx.h"
#include "common/record/ops.h"
#include "common/record/record.h"
#include "kernels/shared/parts.h"
#include "tests/support/streams.h"

OWNER(recording, recording_free)
#define OWNED_RECORDING OWNED_BY(recording)

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
    assert_true(recorder_arm(cpu, why, sizeof why));
    assert_true(recorder_start(cpu, why, sizeof why));
}

static recording *stop(void)
{
    char why[256] = "";
    recording *r = recorder_stop(cpu, why, sizeof why);
    recorder_disarm();
    if (!r)
        fail_msg("%s", why);
    return r;
}

static void run(const char *op, double flops)
{
    const record_work work = {.op = op, .flops = flops};
    const double until = host_seconds() + 20e-6;
    op_push(op, &work);
    while (host_seconds() < until)
        ;
    op_pop();
}

static void run_part(const char *name)
{
    const record_work work = {.op = "attention forward", .part = true};
    op_push(name, &work);
    op_pop();
}

static void is(const recording *r, size_t i, const char *path, const char *op, const char *name, int step)
{
    assert_true(i < r->span_count);
    const record_span *s = &r->spans[i];
    assert_string_equal(r->ranges[s->range].path, path);
    assert_string_equal(record_op(r, s->range)->op, op);
    assert_string_equal(s->name, name);
    assert_int_equal(s->step, step);
    assert_true(s->start_us < s->end_us);
}

TEST(spans_belong_to_ranges_and_steps)
{
    start();
    run("fill", 0); /* of no range and no step */
    for (int step = 0; step < 2; step++) {
        recorder_step(step);
        scope_push("case"); /* left out of paths */
        range_push("forward");
        range_push("qkv");
        run("matmul", 8);
        range_pop();
        const record_work attention = {.op = "attention forward"};
        op_push(attention.op, &attention);
        run_part("scores");
        run_part("softmax");
        op_pop();
        range_pop();
        scope_pop();
    }
    recorder_step(-1);
    run("copy", 0);
    OWNED_RECORDING recording *r = stop();
    assert_true(r->host_spans);
    assert_int_equal(r->span_count, 8);
    is(r, 0, "", "fill", "fill", -1);
    for (size_t step = 0; step < 2; step++) {
        is(r, 1 + 3 * step, "forward/qkv", "matmul", "matmul", (int)step);
        is(r, 2 + 3 * step, "forward/scores", "attention forward", "scores", (int)step); /* not the op as well */
        is(r, 3 + 3 * step, "forward/softmax", "attention forward", "softmax", (int)step);
    }
    is(r, 7, "", "copy", "copy", -1);
    assert_true(record_op(r, r->spans[1].range)->flops == 8);
}

/* Twice: what an earlier arming has left is gone, and a range that spans the arming has no meaning in it. */
TEST(early_ranges_are_ignored)
{
    for (int round = 0; round < 2; round++) {
        range_push("early");
        start();
        range_pop();
        run("fill", 0);
        range_push("late");
        OWNED_RECORDING recording *r = stop();
        range_pop();
        assert_int_equal(r->span_count, 1);
        is(r, 0, "", "fill", "fill", -1);
        assert_int_equal(r->range_count, 2);
        assert_true(isnan(r->ranges[1].end_us));
    }
}

static void *communicate(void *range)
{
    const double now = host_seconds();
    recorder_communicated("all_reduce", *(int *)range, now, now + 1e-5);
    return NULL;
}

TEST(another_thread_communicates)
{
    pthread_t thread;
    start();
    recorder_step(3);
    range_push("backward");
    const record_work work = {.op = "all_reduce", .bytes = 64, .elsewhere = true};
    op_push(work.op, &work);
    int range = recorder_open_range();
    assert_int_equal(pthread_create(&thread, NULL, communicate, &range), 0);
    pthread_join(thread, NULL);
    op_pop();
    range_pop();
    recorder_step(-1);
    OWNED_RECORDING recording *r = stop();
    assert_int_equal(r->span_count, 1); /* what waited here is no span */
    is(r, 0, "backward", "all_reduce", "all_reduce", 3);
    assert_int_equal(r->spans[0].lane, LANE_COMMUNICATION);
    assert_true(record_op(r, r->spans[0].range)->bytes == 64);
}

TEST(more_than_the_stack_holds)
{
    enum { DEEP = 100 };
    start();
    for (int i = 0; i < DEEP; i++)
        range_push("deep");
    run("fill", 0);
    for (int i = 0; i < DEEP + 1; i++)
        range_pop();
    run("copy", 0);
    OWNED_RECORDING recording *r = stop();
    is(r, r->span_count - 1, "", "copy", "copy", -1);
}

TEST(without_a_recording)
{
    char why[256] = "";
    assert_int_equal(recorder_open_range(), -1);
    run("fill", 0);
    start();
    assert_null(recorder_stop(cpu, why, sizeof why));
    assert_string_equal(why, "nothing ran while it was recorded");
    recorder_disarm();
}

/* The wrapped table gives what the table gives, and says what it does. */
TEST(a_wrapped_table)
{
    const sb_kernels *plain = sb_kernels_cpu(), *k = profiled_kernels(plain);
    sb_context *ctx;
    float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0, 2, 0, 1, 1}, want[4], got[4];
    sb_matmul p = {.dtype = SB_FP32, .dtype_out = SB_FP32, .transpose_b = true, .m = 2, .n = 2, .k = 3};
    p.lda = p.ldb = 3, p.ldd = 2, p.a = a, p.b = b;
    assert_int_equal(k->create(0, &ctx), SB_OK);
    p.d = want;
    assert_int_equal(plain->train->matmul(ctx, &p, NULL), SB_OK);
    p.d = got;
    start();
    assert_int_equal(k->train->matmul(ctx, &p, NULL), SB_OK);
    recording *r = stop();
    assert_memory_equal(want, got, sizeof want);
    is(r, 0, "", "matmul", "matmul", -1);
    assert_true(record_op(r, r->spans[0].range)->flops == 24);
    assert_true(record_op(r, r->spans[0].range)->bytes == (6 + 6 + 4) * 4);
    assert_string_equal(record_op(r, r->spans[0].range)->dtype, "fp32");
    recording_free(r);
    for (const sb_attention_op *op = plain->attention; op->name; op++)
        assert_string_equal(sb_attention_find(k, op->name)->name, op->name);
    k->destroy(ctx);
}

static sb_status backward_in_parts(sb_context *ctx, const sb_attention *a, void *stream)
{
    (void)ctx, (void)a, (void)stream;
    static const char *const parts[] = {"value", "softmax", "scores"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        sb_part_begin(parts[i]);
        sb_part_end();
    }
    return SB_OK;
}

/* dV and dP have the columns of v, dQ and dK those of q, and the softmax neither. */
TEST(parts_with_values_of_another_width)
{
    enum { B = 2, H = 3, SQ = 5, SK = 7, D = 24, DV = 16 };
    const sb_attention_op ops[] = {{.name = "unfused", .backward = backward_in_parts}, {0}};
    sb_kernels fake = *sb_kernels_cpu();
    sb_attention a = {.batch = B, .heads = H, .heads_kv = H, .seq_q = SQ, .seq_k = SK, .head_dim = D, .head_dim_v = DV};
    a.dtype = SB_BF16;
    fake.attention = ops;
    const sb_kernels *k = profiled_kernels(&fake);
    start();
    assert_int_equal(k->attention[0].backward(NULL, &a, NULL), SB_OK);
    recording *r = stop();
    const double columns[] = {DV, 0, D};
    assert_int_equal(r->span_count, 3);
    for (size_t i = 0; i < 3; i++) { /* of one head */
        const record_work *work = &r->ranges[r->spans[i].range].work;
        const double bytes = i == 1 ? 3 * SQ * SK * 2 : 2 * (SQ * SK + (SQ + SK) * columns[i]) * 2;
        assert_true(work->flops == (i == 1 ? 5 * SQ * SK : 2 * 2 * SQ * SK * columns[i]));
        assert_true(work->bytes == bytes);
    }
    const record_range *whole = &r->ranges[r->ranges[r->spans[0].range].parent];
    assert_string_equal(whole->name, "attention backward");
    assert_true(whole->work.flops == B * H * SQ * SK * 2 * (3 * D + 2 * DV));
    assert_true(whole->work.bytes == B * H * (2 * (SQ + SK) * (D + DV) * 2 + SQ * 4));
    recording_free(r);
}

static sb_status forward_of_nothing(sb_context *ctx, const sb_attention *a, void *stream)
{
    (void)ctx, (void)a, (void)stream;
    return SB_OK;
}

/* Ceilings are looked up by these names. */
TEST(every_dtype_has_a_name)
{
    static const char *const names[] = {"bf16", "fp16", "tf32", "fp32", "bf16x3"};
    const sb_attention_op ops[] = {{.name = "flash", .forward = forward_of_nothing}, {0}};
    sb_kernels fake = *sb_kernels_cpu();
    fake.attention = ops;
    const sb_kernels *k = profiled_kernels(&fake);
    for (int dtype = SB_BF16; dtype <= SB_BF16X3; dtype++) {
        const sb_attention a = {
            .batch = 1, .heads = 1, .heads_kv = 1, .seq_q = 1, .seq_k = 1, .head_dim = 16, .dtype = dtype};
        start();
        assert_int_equal(k->attention[0].forward(NULL, &a, NULL), SB_OK);
        OWNED_RECORDING recording *r = stop();
        assert_string_equal(record_op(r, r->spans[0].range)->dtype, names[dtype]);
    }
}

/* ---- spans alone ---- */

static void start_spans(void)
{
    char why[256];
    if (!recorder_start_spans(cpu, why, sizeof why))
        fail_msg("%s", why);
}

static recording *stop_spans(void)
{
    char why[256];
    recording *r = recorder_stop(cpu, why, sizeof why);
    if (!r)
        fail_msg("%s", why);
    return r;
}

typedef struct collective {
    double start_s, end_s;
} collective;

/* As a backend does it on a stream's thread. */
static void communicate_until(void *arg)
{
    const collective *c = arg;
    while (host_seconds() < c->end_s)
        usleep(200);
    recorder_communicated("all_reduce", -1, c->start_s, c->end_s);
}

TEST(spans_need_no_arming)
{
    void *s = device_stream_create(cpu, STREAM_NORMAL, "comm");
    for (int round = 0; round < 2; round++) {
        run("before", 0);
        start_spans();
        const double now = host_seconds();
        device_stream_run(cpu, s, communicate_until, &(collective){now, now + 4e-3}, sizeof(collective));
        range_push("backward");
        run("matmul", 8);
        range_pop();
        stream_sync(cpu, s);
        OWNED_RECORDING recording *r = stop_spans();
        range_push("after"); /* stopping has disarmed */
        assert_int_equal(recorder_open_range(), -1);
        range_pop();
        assert_int_equal(r->span_count, 2);
        assert_string_equal(r->spans[0].name, "all_reduce");
        assert_true(fabs(r->spans[0].end_us - r->spans[0].start_us - 4000) < 1);
        is(r, 1, "backward", "matmul", "matmul", -1);
        assert_int_not_equal(r->spans[0].stream, r->spans[1].stream);
    }
    device_stream_destroy(cpu, s);
}

static void *many_spans(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2000; i++) {
        op_push("fill", &(record_work){.op = "fill"});
        op_pop();
    }
    return NULL;
}

TEST(threads_record_at_once)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    start_spans();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, many_spans, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    OWNED_RECORDING recording *r = stop_spans();
    assert_int_equal(r->span_count, 2000 * THREADS);
    for (size_t i = 1; i < r->span_count; i++)
        assert_true(r->spans[i - 1].start_us <= r->spans[i].start_us);
}

TEST(what_can_not_be_recorded_is_said)
{
    char why[256] = "";
    if (!device_no_cuda_reason())
        skip();
    assert_false(cupti_start(false, why, sizeof why));
    assert_string_not_equal(why, "");
}

/* Twice, and from a graph, too: enough work on one stream that its order can be seen. */
TEST(a_gpu_records_what_it_ran)
{
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
        if (!recorder_start_spans(d, why, sizeof why))
            fail_msg("%s", why);
        run("an op of the host is no span here", 0);
        device_memset(d, a, 1, BYTES);
        device_copy(d, b, a, BYTES);
        device_graph_launch(d, graph);
        OWNED_RECORDING recording *r = recorder_stop(d, why, sizeof why);
        const double after = host_seconds();
        if (!r)
            fail_msg("%s", why);
        assert_int_equal(r->span_count, 4);
        assert_string_equal(r->spans[0].name, "memset");
        assert_string_equal(r->spans[1].name, "copy");
        for (size_t i = 0; i < r->span_count; i++) {
            assert_int_equal(r->spans[i].lane, LANE_COMPUTE);
            assert_int_equal(r->spans[i].range, -1);
            assert_true(r->spans[i].end_us > r->spans[i].start_us);
        }
        double busy_us = 0;
        for (size_t i = 0; i < r->span_count; i++)
            busy_us += r->spans[i].end_us - r->spans[i].start_us;
        assert_true(busy_us > 0.9 * 4 * BYTES / 10e6); /* 10 TB/s at most */
        assert_true(r->spans[0].start_us > 1e6 * (before - 1e-3) && r->spans[3].end_us < 1e6 * (after + 1e-3));
    }
    device_graph_destroy(d, graph);
    device_free(d, a);
    device_free(d, b);
    device_close(d);
}

/* ---- clocks of hosts ---- */

/* A clock 1 ms ahead of rank 0's, 50 ppm fast, asked over a way that is slower there than back: the best question decides,
 * and what it says is off by less than half of its round trip. */
TEST(clocks_of_hosts_are_put_right)
{
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
    record_span spans[] = {
        {.start_us = (50 * (1 + fast) + ahead_s) * 1e6, .end_us = (51 * (1 + fast) + ahead_s) * 1e6}};
    recording r = {.spans = spans, .span_count = 1};
    recording_move(&r, &c);
    assert_true(fabs(spans[0].start_us - 50e6) < c.err_us);
    assert_true(fabs(spans[0].end_us - spans[0].start_us - 1e6) < 0.1);

    const clock_reading own = {.at_s = 5}, later = {.at_s = 6};
    const host_clock same = host_clock_of(&own, &later), at_once = host_clock_of(&own, &own);
    assert_true(same.err_us == 0 && host_clock_rank_0_s(&same, 77.5) == 77.5);
    assert_true(host_clock_rank_0_s(&at_once, 77.5) == 77.5);
}

TESTS_WITH(open_cpu, close_cpu)
