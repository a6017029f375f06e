/* SPDX-License-Identifier: MIT */
/* Measuring on the CPU: how often a function runs, which columns are filled, and that what was timed can be run again. */
#include "tests/support/test.h"

#include "common/core/clock.h"
#include "common/session/measure.h"
#include "tests/support/fake_nvml.h"

typedef struct counter {
    int calls, fail_at;
} counter;

static bool count(void *arg)
{
    counter *c = arg;
    usleep(1000);
    return ++c->calls != c->fail_at;
}

TEST(timer_counts_and_stops)
{
    device *d = device_open(DEVICE_CPU, 0);
    samples x = {0};
    const char *used;
    counter c = {0};
    timing t = {.warmup = 2, .iters = 5};
    assert_true(measure_samples(d, &t, count, &c, &x, &used));
    assert_string_equal(used, "host");
    assert_int_equal(c.calls, 7);
    assert_int_equal(x.n, 5);
    for (size_t i = 0; i < x.n; i++)
        assert_true(x.x[i] >= 1);

    samples_clear(&x);
    t = (timing){.iters = 1000, .max_s = 1e-6, .cold_l2 = true};
    assert_true(measure_samples(d, &t, count, &c, &x, &used));
    assert_int_equal(x.n, 3);

    /* 60 ms of calls that give no sample, and as long with samples, more than were asked for. */
    c = (counter){0};
    samples_clear(&x);
    t = (timing){.warmup = 1, .iters = 2, .settle_s = 0.06};
    const double start = host_seconds();
    assert_true(measure_samples(d, &t, count, &c, &x, &used));
    assert_true(host_seconds() - start >= 0.12);
    assert_true(x.n > 2 && c.calls > (int)x.n + 2 && c.calls <= 1 + 2 * 60);

    /* A warm-up that takes as long has settled the device, and --max-time is the most. */
    c = (counter){0};
    samples_clear(&x);
    t = (timing){.warmup = 70, .iters = 5, .settle_s = 0.06, .max_s = 1e-6};
    assert_true(measure_samples(d, &t, count, &c, &x, &used));
    assert_true(c.calls >= 3 && x.n == 3);
    t.max_s = 0;
    c = (counter){0};
    samples_clear(&x);
    assert_true(measure_samples(d, &t, count, &c, &x, &used));
    assert_int_equal(c.calls, 70 + (int)x.n);

    samples_clear(&x);
    c = (counter){.fail_at = 4};
    t = (timing){.warmup = 1, .iters = 10};
    assert_false(measure_samples(d, &t, count, &c, &x, &used));
    assert_int_equal(c.calls, 4);
    samples_free(&x);
    device_close(d);
}

/* ---- measuring into a row ---- */

static const column_spec measured_columns[] = {
    {"fwd_ms", COLUMN_REAL, true, "median"},
    {"fwd_p90_ms", COLUMN_REAL, true, "90th percentile"},
    {"n_fwd", COLUMN_INT, true, "samples"},
    {"timer_fwd", COLUMN_TEXT, true, "timer"},
    {"half_us", COLUMN_REAL, true, "of one of two calls"},
    {"n_samples", COLUMN_INT, true, "samples of what has no count of its own"},
    {"timer", COLUMN_TEXT, true, "timer of what has no column of its own"},
    {"a_ms", COLUMN_REAL, true, "part"},
    {"a_mean_ms", COLUMN_REAL, true, "its mean"},
    {"c_ms", COLUMN_REAL, true, "a part that is not there"},
    {"host_ms", COLUMN_REAL, true, "by the host's clock"},
    {"n_steps", COLUMN_INT, true, "steps"},
    {0}};
static const bench_info measured_info = {.name = "bench_measured", .summary = "?", .columns = measured_columns};

/* A session without its main: what measuring takes of it, and one row. */
typedef struct bare_session {
    session s;
    options *o;
    bench_case *c;
    row *w;
    char *path;
} bare_session;

static bare_session bare_open_as(const bench_info *info, const char *folder)
{
    static char *argv[] = {"bench_measured"};
    char msg[256];
    bare_session b = {.o = options_try(info, 1, argv, &sample_on_cpu, msg, sizeof msg)};
    assert_non_null(b.o);
    b.s = (session){.opt = b.o, .dev = device_open(DEVICE_CPU, 0), .timing = {.warmup = 2, .iters = 5}};
    b.path = folder_path(folder, "rows.csv");
    b.s.rows = rows_open(
        b.o,
        &(rows_info){.csv_path = b.path, .machine = "test-x1", .device_name = "a CPU", .device = "cpu", .quiet = true},
        false);
    b.c = case_at(b.o, 0);
    b.w = row_begin(b.s.rows, b.c);
    return b;
}

static bare_session bare_open(const char *folder)
{
    return bare_open_as(&measured_info, folder);
}

/* The row as it was written. */
static csv *bare_close(bare_session *b)
{
    row_commit(b->w);
    assert_int_equal(rows_close(b->s.rows), EXIT_CODE_OK);
    case_free(b->c);
    device_close(b->s.dev);
    options_free(b->o);
    csv *rows = csv_read(b->path);
    free(b->path);
    return rows;
}

static struct {
    int runs;
    bool (*fn)(void *arg);
    void *arg;
} looked_at;

static void look(session *s, const char *name, bool (*fn)(void *arg), void *arg)
{
    assert_non_null(s);
    assert_true(strcmp(name, "fwd") == 0 || strcmp(name, "steps") == 0);
    looked_at.runs++;
    looked_at.fn = fn;
    looked_at.arg = arg;
    assert_true(fn(arg));
}

TEST_IN_FOLDER(measure_fills_the_declared_columns)
{
    bare_session b = bare_open(*state);
    counter c = {0};
    double ms = 0, half_ms = 0, other_ms = 0;
    b.s.after_measure = look;
    looked_at.runs = 0;
    assert_true(measure(&b.s, b.w, "fwd", count, &c, &ms));
    assert_int_equal(looked_at.runs, 1); /* once, after the samples were taken, the same work */
    assert_true(looked_at.fn == count && looked_at.arg == &c);
    assert_int_equal(c.calls, 8);
    assert_true(ms >= 1);

    b.s.after_measure = NULL;
    measure_how how = measure_default(&b.s);
    how.calls = 2;
    how.timing.iters = 3;
    assert_true(measure_with(&b.s, b.w, "half", &how, count, &c, &half_ms));
    assert_true(measure_with(&b.s, NULL, "nothing", &how, count, &c, &other_ms)); /* no row to fill */
    c.fail_at = c.calls + 1;
    double untouched = 7;
    assert_false(measure(&b.s, b.w, "a", count, &c, &untouched));
    assert_true(untouched == 7);

    OWNED_CSV csv *r = bare_close(&b);
    assert_true(fabs(csv_real(r, 0, "fwd_ms") / ms - 1) < 1e-6);
    assert_true(csv_real(r, 0, "fwd_p90_ms") >= csv_real(r, 0, "fwd_ms"));
    assert_true(csv_real(r, 0, "n_fwd") == 5);
    assert_string_equal(csv_cell(r, 0, "timer_fwd"), "host");
    assert_true(half_ms >= 0.5 && fabs(csv_real(r, 0, "half_us") / (half_ms * 1e3) - 1) < 1e-6);
    assert_true(csv_real(r, 0, "n_samples") == 3);
    assert_string_equal(csv_cell(r, 0, "timer"), "host");
    assert_true(isnan(csv_real(r, 0, "a_ms")));
}

typedef struct toy_step {
    int launched, waited, early;
} toy_step;

static bool toy_enqueue(void *arg)
{
    ((toy_step *)arg)->launched++;
    return true;
}

static void toy_wait(void *arg, double *ms)
{
    toy_step *t = arg;
    t->waited++;
    ms[0] = t->waited;
    ms[1] = 100 * t->waited;
    ms[2] = 1e4;
}

static void toy_early(void *arg, int i, double host_ms)
{
    toy_step *t = arg;
    assert_int_equal(i, t->early);
    assert_int_equal(t->waited, i + 1);
    assert_true(host_ms >= 0);
    t->early++;
}

TEST_IN_FOLDER(steps_are_taken_one_by_one)
{
    bare_session b = bare_open(*state);
    toy_step t = {0};
    static const char *const names[] = {"a", "b", NULL};
    const measure_step step = {.names = names,
                               .parts = 3,
                               .host_name = "host",
                               .warmup = 3,
                               .enqueue = toy_enqueue,
                               .wait = toy_wait,
                               .early = toy_early};
    measured_steps m;
    looked_at.runs = 0;
    b.s.after_measure = look;
    assert_true(measure_steps(&b.s, b.w, &step, &t, &m));
    assert_int_equal(looked_at.runs, 1);
    assert_int_equal(t.waited, 8);
    assert_int_equal(t.launched, 9);
    assert_int_equal(t.early, MEASURE_EARLY);
    assert_int_equal(m.n, 5);
    assert_true(m.median_ms[0] == 6 && m.median_ms[1] == 600 && isnan(m.median_ms[2])); /* of steps 4 to 8 */
    OWNED_CSV csv *r = bare_close(&b);
    assert_true(csv_real(r, 0, "a_ms") == 6 && csv_real(r, 0, "a_mean_ms") == 6);
    assert_true(isnan(csv_real(r, 0, "c_ms")));
    assert_true(csv_real(r, 0, "host_ms") >= 0);
    assert_true(csv_real(r, 0, "n_steps") == 5);
}

/* ---- energy and the steady state, on a GPU of 500 W ---- */

static const column_spec energy_columns[] = {{"fwd_ms", COLUMN_REAL, true, "median"},
                                             {"fwd_mean_ms", COLUMN_REAL, true, "mean"},
                                             {"fwd_j", COLUMN_REAL, true, "energy of a call"},
                                             {"fwd_tflop_per_j", COLUMN_REAL, true, "work of a joule"},
                                             {"energy_j", COLUMN_REAL, true, "energy of what has no column of its own"},
                                             {"step_j", COLUMN_REAL, true, "energy of a step"},
                                             {"sustained_us", COLUMN_REAL, true, "median in the steady state"},
                                             {"sustained_tflops", COLUMN_REAL, true, "rate"},
                                             {"sustained_j", COLUMN_REAL, true, "energy of a call"},
                                             {"sustained_power_w", COLUMN_REAL, true, "power"},
                                             {"sustained_sm_mhz", COLUMN_REAL, true, "clock"},
                                             {"sustained_drift_pct", COLUMN_REAL, true, "drift"},
                                             {"sustained_step_ms", COLUMN_REAL, true, "median in the steady state"},
                                             {"sustained_step_j", COLUMN_REAL, true, "energy of a step"},
                                             {0}};
static const bench_info energy_info = {.name = "bench_energy", .summary = "?", .columns = energy_columns};

static bare_session energy_open(const char *folder)
{
    bare_session b = bare_open_as(&energy_info, folder);
    fake = (fake_gpu){.power_w = 500, .mean_power_w = 100, .tick_s = 0.02, .sm_mhz = {1400, 1400, 1400}};
    fake_nvml_give(b.s.dev);
    device_sense(b.s.dev, 0.002);
    b.s.timing = (timing){.warmup = 1, .iters = 30};
    return b;
}

static csv *energy_close(bare_session *b)
{
    fake_nvml_take(b->s.dev);
    return bare_close(b);
}

/* Ticks are seen a reading late; the rest is for a busy machine. */
static bool near(double got, double want)
{
    return fabs(got / want - 1) < 0.15;
}

static bool sleep_20_ms(void *arg)
{
    counter *c = arg;
    c->calls++;
    usleep(20 * 1000);
    return true;
}

/* 30 calls of 20 ms are 0.6 s. The real time of a call is known from what was measured. */
TEST_IN_FOLDER(a_call_takes_its_time_at_the_mean_power)
{
    bare_session b = energy_open(*state);
    counter c = {0};
    double ms;
    measure_how how = measure_default(&b.s);
    how.calls = 2;
    how.flops = 3e12;
    assert_true(measure_with(&b.s, b.w, "fwd", &how, sleep_20_ms, &c, &ms));
    assert_true(measure_with(&b.s, b.w, "other", &how, sleep_20_ms, &c, &ms));
    how.timing.iters = 5; /* too short for the counter */
    assert_true(measure_with(&b.s, NULL, "short", &how, sleep_20_ms, &c, &ms));
    csv *r = energy_close(&b);
    assert_true(near(csv_real(r, 0, "fwd_j"), csv_real(r, 0, "fwd_mean_ms") / 1e3 * 500));
    assert_true(near(csv_real(r, 0, "fwd_tflop_per_j"), 3 / csv_real(r, 0, "fwd_j")));
    assert_true(csv_real(r, 0, "energy_j") > 0.85 * 0.5 * 10 && csv_real(r, 0, "energy_j") < 2 * 0.5 * 10);
    csv_free(r);

    b = energy_open(*state);
    remove(b.path);
    how = measure_default(&b.s);
    how.timing.cold_l2 = true;
    assert_true(measure_with(&b.s, b.w, "fwd", &how, sleep_20_ms, &c, &ms));
    r = energy_close(&b);
    assert_true(isnan(csv_real(r, 0, "fwd_j"))); /* part of it is that of the flushes */
    csv_free(r);
}

/* A call that gets slower: 5 ms, 10 ms, 15 ms from call to call of its 100 first ones. */
static bool slower_and_slower(void *arg)
{
    counter *c = arg;
    fake.throttle = 0x4; /* it heats up */
    usleep(c->calls < 60 ? 5000 : c->calls < 90 ? 10000 : 12000);
    c->calls++;
    return true;
}

TEST_IN_FOLDER(sustained_is_the_second_half)
{
    bare_session b = energy_open(*state);
    counter c = {0};
    double ms = 0;
    measure_how how = measure_default(&b.s);
    how.flops = 1e12;
    assert_true(measure_sustained(&b.s, b.w, "sustained", &how, slower_and_slower, &c, &ms));
    assert_true(isnan(ms) && c.calls == 0); /* nobody asked */
    b.s.sustain_s = 1.2;
    assert_true(measure_sustained(&b.s, b.w, "sustained", &how, slower_and_slower, &c, &ms));
    assert_true(c.calls > 60 && c.calls < 190); /* 0.6 s twice */
    const device_conditions conditions = device_state(b.s.dev);
    assert_string_equal(conditions.throttle, "");
    assert_int_equal(conditions.readings, 0); /* those of the case are of what is timed */
    OWNED_CSV csv *r = energy_close(&b);
    assert_true(ms >= 10 && near(csv_real(r, 0, "sustained_us"), 1e3 * ms));
    assert_true(near(csv_real(r, 0, "sustained_tflops"), 1e3 / ms));
    assert_true(near(csv_real(r, 0, "sustained_power_w"), 500));
    assert_true(csv_real(r, 0, "sustained_sm_mhz") == 1400);
    assert_true(csv_real(r, 0, "sustained_j") > 0.85 * 0.5 * 10 && csv_real(r, 0, "sustained_j") < 2 * 0.5 * 12);
    assert_true(!isnan(csv_real(r, 0, "sustained_drift_pct")));
}

static bool step_enqueue(void *arg)
{
    return sleep_20_ms(arg);
}

static void step_wait(void *arg, double *ms)
{
    (void)arg;
    usleep(5000);
    ms[0] = 20;
}

TEST_IN_FOLDER(a_step_takes_energy_from_launch_to_completion)
{
    bare_session b = energy_open(*state);
    counter c = {0};
    static const char *const names[] = {"a"};
    const measure_step step = {.names = names, .parts = 1, .warmup = 2, .enqueue = step_enqueue, .wait = step_wait};
    measured_steps m, sustained;
    b.s.sustain_s = 1.2;
    assert_true(measure_steps(&b.s, b.w, &step, &c, &m));
    assert_int_equal(c.calls, 32);
    assert_true(measure_steps_sustained(&b.s, b.w, &step, 0, &c, &sustained));
    OWNED_CSV csv *r = energy_close(&b);
    assert_true(m.step_j > 0.85 * 0.5 * 25 && m.step_j < 2 * 0.5 * 25); /* a busy machine sleeps for longer */
    assert_true(near(csv_real(r, 0, "step_j"), m.step_j));
    assert_true(sustained.step_j > 0.85 * 0.5 * 25 && sustained.step_j < 2 * 0.5 * 25);
    assert_true(sustained.median_ms[0] == 20 && csv_real(r, 0, "sustained_step_ms") == 20);
    assert_true(near(csv_real(r, 0, "sustained_step_j"), sustained.step_j));
    assert_true(sustained.n > 5 && sustained.n < 30); /* 0.6 s of 25 ms */
}
