/* SPDX-License-Identifier: MIT */
/* The recorder on the CPU: what a span belongs to, steps, parts of ops, threads, and ranges that began too early. */
#include "tests/support/test.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/clock.h"
#include "common/profile/nvtx.h"
#include "common/profile/ops.h"
#include "common/profile/record.h"
#include "kernels/parts.h"

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

static void spans_belong_to_ranges_and_steps(void **state)
{
    (void)state;
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
    recording *r = stop();
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
    recording_free(r);
}

/* Twice: what an earlier arming has left is gone, and a range that spans the arming has no meaning in it. */
static void early_ranges_are_ignored(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        range_push("early");
        start();
        range_pop();
        run("fill", 0);
        range_push("late");
        recording *r = stop();
        range_pop();
        assert_int_equal(r->span_count, 1);
        is(r, 0, "", "fill", "fill", -1);
        assert_int_equal(r->range_count, 2);
        assert_true(isnan(r->ranges[1].end_us));
        recording_free(r);
    }
}

static void *communicate(void *range)
{
    const double now = host_seconds();
    recorder_communicated("all_reduce", *(int *)range, now, now + 1e-5);
    return NULL;
}

static void another_thread_communicates(void **state)
{
    (void)state;
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
    recording *r = stop();
    assert_int_equal(r->span_count, 1); /* what waited here is no span */
    is(r, 0, "backward", "all_reduce", "all_reduce", 3);
    assert_int_equal(r->spans[0].lane, LANE_COMMUNICATION);
    assert_true(record_op(r, r->spans[0].range)->bytes == 64);
    recording_free(r);
}

static void more_than_the_stack_holds(void **state)
{
    enum { DEEP = 100 };
    (void)state;
    start();
    for (int i = 0; i < DEEP; i++)
        range_push("deep");
    run("fill", 0);
    for (int i = 0; i < DEEP + 1; i++)
        range_pop();
    run("copy", 0);
    recording *r = stop();
    is(r, r->span_count - 1, "", "copy", "copy", -1);
    recording_free(r);
}

static void without_a_recording(void **state)
{
    char why[256] = "";
    (void)state;
    assert_int_equal(recorder_open_range(), -1);
    run("fill", 0);
    start();
    assert_null(recorder_stop(cpu, why, sizeof why));
    assert_string_equal(why, "nothing ran while it was recorded");
    recorder_disarm();
}

/* The wrapped table gives what the table gives, and says what it does. */
static void a_wrapped_table(void **state)
{
    (void)state;
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
static void parts_with_values_of_another_width(void **state)
{
    enum { B = 2, H = 3, SQ = 5, SK = 7, D = 24, DV = 16 };
    const sb_attention_op ops[] = {{.name = "unfused", .backward = backward_in_parts}, {0}};
    sb_kernels fake = *sb_kernels_cpu();
    sb_attention a = {.batch = B, .heads = H, .heads_kv = H, .seq_q = SQ, .seq_k = SK, .head_dim = D, .head_dim_v = DV};
    a.dtype = SB_BF16;
    (void)state;
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
static void every_dtype_has_a_name(void **state)
{
    static const char *const names[] = {"bf16", "fp16", "tf32", "fp32", "bf16x3"};
    const sb_attention_op ops[] = {{.name = "flash", .forward = forward_of_nothing}, {0}};
    sb_kernels fake = *sb_kernels_cpu();
    (void)state;
    fake.attention = ops;
    const sb_kernels *k = profiled_kernels(&fake);
    for (int dtype = SB_BF16; dtype <= SB_BF16X3; dtype++) {
        const sb_attention a = {
            .batch = 1, .heads = 1, .heads_kv = 1, .seq_q = 1, .seq_k = 1, .head_dim = 16, .dtype = dtype};
        start();
        assert_int_equal(k->attention[0].forward(NULL, &a, NULL), SB_OK);
        recording *r = stop();
        assert_string_equal(record_op(r, r->spans[0].range)->dtype, names[dtype]);
        recording_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_belong_to_ranges_and_steps),
        cmocka_unit_test(early_ranges_are_ignored),
        cmocka_unit_test(another_thread_communicates),
        cmocka_unit_test(more_than_the_stack_holds),
        cmocka_unit_test(without_a_recording),
        cmocka_unit_test(a_wrapped_table),
        cmocka_unit_test(parts_with_values_of_another_width),
        cmocka_unit_test(every_dtype_has_a_name),
    };
    return cmocka_run_group_tests_name("record", tests, open_cpu, close_cpu);
}
