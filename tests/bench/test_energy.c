/* SPDX-License-Identifier: MIT */
/* Columns of energy, without a GPU: the linker gives the CPU backend a GPU's sensors, whose counter grows by a known power.
 * Run as bench_transformer, bench_flash, bench_roofline or bench_run, this program is that bench. */
#include "tests/support/test.h"

#include "common/device/device.h"
#include "tests/support/fake_nvml.h"
#include "tests/support/ranks.h"

enum { POWER_W = 500 };

int bench_main_transformer(int argc, char **argv); /* of bench_transformer.c, and so on */
int bench_main_flash(int argc, char **argv);
int bench_main_roofline(int argc, char **argv);
int bench_main_run(int argc, char **argv);

device *__real_device_cpu_open(void);
device *__wrap_device_cpu_open(void);

device *__wrap_device_cpu_open(void)
{
    device *d = __real_device_cpu_open();
    fake = (fake_gpu){.power_w = POWER_W, .mean_power_w = POWER_W, .tick_s = 0.02, .sm_mhz = {1980, 1980, 1980}};
    fake_nvml_give(d);
    return d;
}

/* The only row. Enough of each measurement for the counter: it is asked for at least 0.6 s. */
static csv *rows_of(const char *bench, const char *options)
{
    OWNED char *all =
        xasprintf("--device cpu --machine test-x1 --csv rows.csv --quiet --check 0 --warmup 1 --iters 1000000 "
                  "--max-time 0.8 --sensors 5 %s",
                  options);
    const int code = ranks_run(bench, all);
    if (code != EXIT_CODE_OK)
        fail_msg("exit code %d: %s", code, ranks_text("err.txt"));
    csv *c = csv_read("rows.csv");
    assert_non_null(c);
    assert_int_equal(c->rows, 1);
    return c;
}

/* Exact, however long the work takes on a busy machine. */
static void per_joule(const csv *c, const char *joules, const char *per, double work)
{
    const double j = csv_real(c, 0, joules);
    if (!(j > 0) || !(fabs(csv_real(c, 0, per) * j / work - 1) < 1e-5))
        fail_msg("%s %g, %s %g: want %g together", joules, j, per, csv_real(c, 0, per), work);
}

/* That the energy is the counter's. The time is a median; the mean, which counts, is no less than half of that, but on a busy
 * machine far more. */
static void by_the_counter(const csv *c, const char *joules, const char *time, double seconds)
{
    const double j = csv_real(c, 0, joules), s = csv_real(c, 0, time) * seconds;
    if (!(j > 0.45 * POWER_W * s))
        fail_msg("%s %g: %s is %g s, at %d W", joules, j, time, s, POWER_W);
}

TEST_IN_RANKS_FOLDER(joules_of_a_step)
{
    OWNED_CSV csv *c =
        rows_of("bench_transformer",
                "--size tiny --batch 2 --micro-batches 3 --seq 16 --precision fp32 --mode train-step --variant none");
    per_joule(c, "step_j", "tokens_per_j", 3 * 2 * 16);
    by_the_counter(c, "step_j", "host_step_mean_ms", 1e-3);
}

/* 4 B H S^2 D forward, 2.5 times that backward. */
TEST_IN_RANKS_FOLDER(joules_of_attention)
{
    OWNED_CSV csv *c =
        rows_of("bench_flash", "--variant flash --dtype fp32 --batch 1 --heads 2 --seq 64 --head-dim 16 --causal 0");
    const double tflop = 4.0 * 2 * 64 * 64 * 16 * 1e-12;
    per_joule(c, "fwd_j", "fwd_tflop_per_j", tflop);
    per_joule(c, "bwd_j", "bwd_tflop_per_j", 2.5 * tflop);
    per_joule(c, "fwd_bwd_j", "fwd_bwd_tflop_per_j", 3.5 * tflop);
    by_the_counter(c, "fwd_j", "fwd_ms", 1e-3);
    by_the_counter(c, "bwd_j", "bwd_ms", 1e-3);
}

TEST_IN_RANKS_FOLDER(joules_of_a_product)
{
    OWNED_CSV csv *c = rows_of("bench_roofline", "--variant gemm --dtype fp32 --size 96 --sustain 1.6");
    const double tflop = 2.0 * 96 * 96 * 96 * 1e-12;
    per_joule(c, "energy_j", "tflop_per_j", tflop);
    per_joule(c, "sustained_j", "sustained_tflop_per_j", tflop);
    by_the_counter(c, "energy_j", "time_us", 1e-6);
    by_the_counter(c, "sustained_j", "sustained_us", 1e-6);
}

/* The log of a run; two ranks have the same GPU. */
TEST_IN_RANKS_FOLDER(power_and_clock_of_a_log)
{
#ifndef HAVE_GLOO
    skip();
#endif
    const int code =
        ranks_run("bench_run", "--device cpu --machine test-x1 --csv rows.csv --quiet --check 0 --sensors 5 "
                               "--size tiny --seq 16 --layers 1 --d-model 32 --heads 2 --vocab 32 "
                               "--precision fp32 --ranks 2 --batch 2 --variant log --steps 200 "
                               "--data-delay 2 --iters 0");
    if (code != EXIT_CODE_OK)
        fail_msg("exit code %d: %s", code, ranks_text("err.txt"));
    OWNED_CSV csv *rows = csv_read("rows.csv"), *log = csv_read("run/log-ddp-2-tiny-16-fp32.csv");
    assert_true(rows && log && log->rows == 20);
    assert_true(csv_real(log, 19, "power_w") == POWER_W && csv_real(log, 19, "sm_mhz") == 1980);
    assert_true(csv_real(log, 19, "peak_bytes") == csv_real(rows, 0, "peak_bytes"));
    assert_true(csv_real(rows, 0, "sm_median_mhz") == 1980);
}

PROGRAM("bench_transformer", bench_main_transformer)
PROGRAM("bench_flash", bench_main_flash)
PROGRAM("bench_roofline", bench_main_roofline)
PROGRAM("bench_run", bench_main_run)
