/* SPDX-License-Identifier: MIT */
/* Streams and events of the CPU: order within a stream, events between them, what a record and a wait refer to. */
#include "tests/support/test.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/stream/cpu_stream.h"

enum { STEPS = 200 };

typedef struct append {
    int *list, *n, value;
} append;

static void append_value(void *arg)
{
    const append *a = arg;
    a->list[(*a->n)++] = a->value;
}

static void sleep_ms(void *arg)
{
    usleep(1000u * *(unsigned *)arg);
}

static void wait_for_flag(void *arg)
{
    atomic_bool *flag = *(atomic_bool **)arg;
    while (!atomic_load(flag))
        usleep(100);
}

static void a_stream_keeps_the_order(void **state)
{
    (void)state;
    int list[STEPS], n = 0;
    cpu_stream *s = cpu_stream_create("one");
    for (int i = 0; i < STEPS; i++)
        cpu_stream_run(s, append_value, &(append){list, &n, i}, sizeof(append));
    cpu_stream_sync(s);
    assert_int_equal(n, STEPS);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(list[i], i);
    cpu_stream_run(s, append_value, &(append){list, &(int){0}, 7}, sizeof(append));
    cpu_stream_destroy(s); /* runs it first */
    assert_int_equal(list[0], 7);
}

/* Plain ints written on one stream and read on the other: without the events this would be a race. */
static void events_order_streams(void **state)
{
    (void)state;
    int list[2 * STEPS], n = 0;
    cpu_stream *s[2] = {cpu_stream_create("ping"), cpu_stream_create("pong")};
    cpu_event *e[2] = {cpu_event_create(), cpu_event_create()};
    for (int i = 0; i < 2 * STEPS; i++) {
        cpu_stream_wait(s[i % 2], e[(i + 1) % 2]);
        cpu_stream_run(s[i % 2], append_value, &(append){list, &n, i}, sizeof(append));
        cpu_stream_record(s[i % 2], e[i % 2]);
    }
    cpu_event_sync(e[1]);
    assert_int_equal(n, 2 * STEPS);
    for (int i = 0; i < n; i++)
        assert_int_equal(list[i], i);
    for (int i = 0; i < 2; i++) {
        cpu_stream_destroy(s[i]);
        cpu_event_destroy(e[i]);
    }
}

static void streams_overlap(void **state)
{
    (void)state;
    atomic_bool go = false, *flag = &go;
    cpu_stream *slow = cpu_stream_create("slow"), *fast = cpu_stream_create("fast");
    cpu_event *done = cpu_event_create(), *held = cpu_event_create();
    cpu_stream_run(slow, wait_for_flag, &flag, sizeof flag);
    cpu_stream_record(slow, held);
    cpu_stream_record(fast, done);
    cpu_event_sync(done); /* though `slow` is not done */
    assert_true(cpu_event_done(done));
    assert_false(cpu_event_done(held));
    atomic_store(&go, true);
    cpu_event_sync(held);
    assert_true(cpu_event_done(held));
    cpu_stream_destroy(slow);
    cpu_stream_destroy(fast);
    cpu_event_destroy(done);
    cpu_event_destroy(held);
}

/* A wait is for the latest record before it: neither for a later one nor for none. */
static void a_wait_is_for_the_latest_record(void **state)
{
    (void)state;
    atomic_bool go = false, *flag = &go;
    int list[4], n = 0;
    cpu_stream *a = cpu_stream_create("a"), *b = cpu_stream_create("b");
    cpu_event *e = cpu_event_create();
    cpu_stream_wait(b, e); /* never recorded: no wait */
    cpu_stream_run(b, append_value, &(append){list, &n, 1}, sizeof(append));
    cpu_stream_sync(b);
    cpu_stream_record(a, e);
    cpu_stream_wait(b, e);
    cpu_stream_run(a, wait_for_flag, &flag, sizeof flag);
    cpu_stream_record(a, e); /* not passed before the flag */
    cpu_stream_run(b, append_value, &(append){list, &n, 2}, sizeof(append));
    cpu_stream_sync(b);
    assert_int_equal(n, 2);
    cpu_stream_wait(b, e);
    cpu_stream_run(b, append_value, &(append){list, &n, 3}, sizeof(append));
    cpu_stream_record(b, e); /* again, on another stream: waiters for the one before are not let go early */
    usleep(20 * 1000);
    assert_false(cpu_event_done(e));
    cpu_event_destroy(e); /* while streams wait for its records */
    atomic_store(&go, true);
    cpu_stream_destroy(a);
    cpu_stream_destroy(b);
    assert_int_equal(n, 3);
}

static void events_tell_the_time(void **state)
{
    (void)state;
    cpu_stream *s = cpu_stream_create("timed");
    cpu_event *from = cpu_event_create(), *to = cpu_event_create();
    assert_true(isnan(cpu_event_ms(from, to)));
    cpu_stream_record(s, from);
    cpu_stream_run(s, sleep_ms, &(unsigned){20}, sizeof(unsigned));
    cpu_stream_record(s, to);
    const double ms = cpu_event_ms(from, to);
    assert_true(ms >= 20 && ms < 2000);
    cpu_stream_destroy(s);
    cpu_event_destroy(from);
    cpu_event_destroy(to);
}

static void without_a_stream_it_is_the_caller(void **state)
{
    (void)state;
    int list[2], n = 0;
    cpu_event *e = cpu_event_create();
    cpu_stream_run(NULL, append_value, &(append){list, &n, 5}, sizeof(append));
    assert_int_equal(n, 1);
    cpu_stream_record(NULL, e);
    assert_true(cpu_event_done(e));
    cpu_stream_wait(NULL, e);
    cpu_stream_sync(NULL);
    cpu_stream_destroy(NULL);
    cpu_event_destroy(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_keeps_the_order), cmocka_unit_test(events_order_streams),
        cmocka_unit_test(streams_overlap),          cmocka_unit_test(a_wait_is_for_the_latest_record),
        cmocka_unit_test(events_tell_the_time),     cmocka_unit_test(without_a_stream_it_is_the_caller),
    };
    return cmocka_run_group_tests_name("cpu_stream", tests, NULL, NULL);
}
