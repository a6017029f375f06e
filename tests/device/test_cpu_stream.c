/* SPDX-License-Identifier: MIT */
/* Streams and events of the CPU: order within a stream, events between them, what a record and a wait refer to. */
#include "tests/support/test.h"
#include "tests/support/streams.h"

#include <stdatomic.h>

enum { STEPS = 200 };

static device *cpu;

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

TEST(a_stream_keeps_the_order)
{
    int list[STEPS], n = 0;
    void *s = device_stream_create(cpu, STREAM_NORMAL, "one");
    for (int i = 0; i < STEPS; i++)
        device_stream_run(cpu, s, append_value, &(append){list, &n, i}, sizeof(append));
    stream_sync(cpu, s);
    assert_int_equal(n, STEPS);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(list[i], i);
    device_stream_run(cpu, s, append_value, &(append){list, &(int){0}, 7}, sizeof(append));
    device_stream_destroy(cpu, s); /* runs it first */
    assert_int_equal(list[0], 7);
}

/* Plain ints written on one stream and read on the other: without the events this would be a race. */
TEST(events_order_streams)
{
    int list[2 * STEPS], n = 0;
    void *s[2] = {device_stream_create(cpu, STREAM_NORMAL, "ping"), device_stream_create(cpu, STREAM_NORMAL, "pong")};
    device_event *e[2] = {device_event_create(cpu), device_event_create(cpu)};
    for (int i = 0; i < 2 * STEPS; i++) {
        device_stream_wait(cpu, s[i % 2], e[(i + 1) % 2]);
        device_stream_run(cpu, s[i % 2], append_value, &(append){list, &n, i}, sizeof(append));
        device_stream_record(cpu, s[i % 2], e[i % 2]);
    }
    device_event_sync(cpu, e[1]);
    assert_int_equal(n, 2 * STEPS);
    for (int i = 0; i < n; i++)
        assert_int_equal(list[i], i);
    for (int i = 0; i < 2; i++) {
        device_stream_destroy(cpu, s[i]);
        device_event_destroy(cpu, e[i]);
    }
}

TEST(streams_overlap)
{
    atomic_bool go = false, *flag = &go;
    void *slow = device_stream_create(cpu, STREAM_NORMAL, "slow"),
         *fast = device_stream_create(cpu, STREAM_NORMAL, "fast");
    device_stream_run(cpu, slow, wait_for_flag, &flag, sizeof flag);
    stream_sync(cpu, fast); /* though `slow` is not done */
    atomic_store(&go, true);
    device_stream_destroy(cpu, slow);
    device_stream_destroy(cpu, fast);
}

/* A wait is for the latest record before it: neither for a later one nor for none. */
TEST(a_wait_is_for_the_latest_record)
{
    atomic_bool go = false, *flag = &go;
    int list[4], n = 0;
    void *a = device_stream_create(cpu, STREAM_NORMAL, "a"), *b = device_stream_create(cpu, STREAM_NORMAL, "b");
    device_event *e = device_event_create(cpu);
    device_stream_wait(cpu, b, e); /* never recorded: no wait */
    device_stream_run(cpu, b, append_value, &(append){list, &n, 1}, sizeof(append));
    stream_sync(cpu, b);
    device_stream_record(cpu, a, e);
    device_stream_wait(cpu, b, e);
    device_stream_run(cpu, a, wait_for_flag, &flag, sizeof flag);
    device_stream_record(cpu, a, e); /* not passed before the flag */
    device_stream_run(cpu, b, append_value, &(append){list, &n, 2}, sizeof(append));
    stream_sync(cpu, b);
    assert_int_equal(n, 2);
    device_stream_wait(cpu, b, e);
    device_stream_run(cpu, b, append_value, &(append){list, &n, 3}, sizeof(append));
    device_stream_record(cpu, b, e); /* again, on another stream: waiters for the one before are not let go early */
    usleep(20 * 1000);
    assert_int_equal(n, 2);
    device_event_destroy(cpu, e); /* while streams wait for its records */
    atomic_store(&go, true);
    device_stream_destroy(cpu, a);
    device_stream_destroy(cpu, b);
    assert_int_equal(n, 3);
}

TEST(events_tell_the_time)
{
    void *s = device_stream_create(cpu, STREAM_NORMAL, "timed");
    device_event *from = device_event_create(cpu), *to = device_event_create(cpu);
    assert_true(isnan(device_event_ms(cpu, from, to)));
    device_stream_record(cpu, s, from);
    device_stream_run(cpu, s, sleep_ms, &(unsigned){20}, sizeof(unsigned));
    device_stream_record(cpu, s, to);
    const double ms = device_event_ms(cpu, from, to);
    assert_true(ms >= 20 && ms < 2000);
    device_stream_destroy(cpu, s);
    device_event_destroy(cpu, from);
    device_event_destroy(cpu, to);
}

TEST(without_a_stream_it_is_the_caller)
{
    int list[2], n = 0;
    device_event *e = device_event_create(cpu);
    device_stream_run(cpu, NULL, append_value, &(append){list, &n, 5}, sizeof(append));
    assert_int_equal(n, 1);
    device_stream_record(cpu, NULL, e);
    device_stream_wait(cpu, NULL, e); /* passed: the caller goes on */
    device_event *later = device_event_create(cpu);
    assert_true(isnan(device_event_ms(cpu, e, later)));
    device_stream_run(cpu, NULL, sleep_ms, &(unsigned){2}, sizeof(unsigned));
    device_event_record(cpu, later);
    assert_true(device_event_ms(cpu, e, later) >= 2);
    device_event_destroy(cpu, later);
    stream_sync(cpu, NULL);
    device_stream_destroy(cpu, NULL);
    device_event_destroy(cpu, e);
}

TEST(the_caller_waits_for_a_stream)
{
    int list[3], n = 0;
    void *s = device_stream_create(cpu, STREAM_NORMAL, "late");
    device_event *e = device_event_create(cpu);
    device_stream_run(cpu, s, sleep_ms, &(unsigned){20}, sizeof(unsigned));
    device_stream_run(cpu, s, append_value, &(append){list, &n, 1}, sizeof(append));
    device_stream_record(cpu, s, e);
    device_stream_wait(cpu, NULL, e);
    device_stream_run(cpu, NULL, append_value, &(append){list, &n, 2}, sizeof(append));
    device_stream_copy(cpu, s, &list[2], &list[1], sizeof(int));
    stream_sync(cpu, s);
    assert_int_equal(n, 2);
    assert_int_equal(list[0], 1);
    assert_int_equal(list[2], 2);
    device_stream_destroy(cpu, s);
    device_event_destroy(cpu, e);
}

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

TESTS_WITH(open_cpu, close_cpu)
