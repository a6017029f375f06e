/* SPDX-License-Identifier: MIT */
/* bench_transformer's columns of energy, without a GPU: the linker gives the CPU backend a GPU's sensors, whose counter
 * grows by a known power. Run as bench_transformer, this program is the bench. */
#include "tests/support/test.h"

#include <math.h>
#include <string.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/device/device.h"
#include "tests/support/fake_nvml.h"
#include "tests/support/ranks.h"

enum { POWER_W = 500, BATCH = 2, SEQ = 16 };

int bench_main(int argc, char **argv); /* of bench_transformer.c */

device *__real_device_cpu_open(void);
device *__wrap_device_cpu_open(void);

device *__wrap_device_cpu_open(void)
{
    device *d = __real_device_cpu_open();
    fake = (fake_gpu){.power_w = POWER_W, .mean_power_w = POWER_W, .tick_s = 0.02, .sm_mhz = {1980, 1980, 1980}};
    fake_nvml_give(d);
    return d;
}

/* Exact, however long the steps take on a busy machine; and their energy is the counter's. */
static void joules_of_a_step(void **state)
{
    (void)state;
    const int code = ranks_run("bench_transformer",
                               "--device cpu --machine test-x1 --csv rows.csv --quiet --size tiny --batch 2 --seq 16 "
                               "--precision fp32 --mode train-step --variant none --check 0 --warmup 1 --iters "
                               "100000 --max-time 1 --sustain 2 --sensors 5");
    if (code != EXIT_CODE_OK)
        fail_msg("exit code %d: %s", code, ranks_text("err.txt"));
    csv *c = csv_read("rows.csv");
    assert_non_null(c);
    assert_int_equal(c->rows, 1);
    const double step_j = csv_real(c, 0, "step_j"), tokens = BATCH * SEQ;
    assert_true(step_j > 0);
    assert_true(fabs(csv_real(c, 0, "tokens_per_j") * step_j / tokens - 1) < 1e-5);
    const double sustained_j = csv_real(c, 0, "sustained_step_j");
    assert_true(sustained_j > 0);
    assert_true(fabs(csv_real(c, 0, "sustained_tokens_per_j") * sustained_j / tokens - 1) < 1e-5);
    const double host_ms = csv_real(c, 0, "host_step_mean_ms");
    if (host_ms > 0)
        assert_true(fabs(step_j / (POWER_W * host_ms * 1e-3) - 1) < 0.2);
    csv_free(c);
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/');
    if (strcmp(name ? name + 1 : argv[0], "bench_transformer") == 0)
        return bench_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(joules_of_a_step, ranks_enter_folder, ranks_leave_folder),
    };
    return cmocka_run_group_tests_name("columns of energy", tests, NULL, NULL);
}
