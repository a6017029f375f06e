/* SPDX-License-Identifier: MIT */
/* --timeout holds to the end: a device that does not close ends the bench with exit code 5, and its rows stay. Run as
 * bench_roofline, this program is the bench, with a device that never closes. */
#include "tests/support/test.h"

#include "common/device/device.h"
#include "tests/support/ranks.h"

int bench_main_roofline(int argc, char **argv); /* of bench_roofline.c */
void __wrap_device_close(device *d);

void __wrap_device_close(device *d)
{
    (void)d;
    for (;;)
        pause();
}

TEST_IN_RANKS_FOLDER(a_device_that_does_not_close)
{
    const int code = ranks_run("bench_roofline", "--device cpu --machine test-x1 --csv rows.csv --quiet --variant gemm "
                                                 "--dtype fp32 --size 64 --iters 1 --settle 0 --timeout 1");
    assert_int_equal(code, EXIT_CODE_TIMEOUT);
    if (!strstr(ranks_text("err.txt"), "no progress for --timeout 1 s, while: closing the device"))
        fail_msg("%s", ranks_text("err.txt"));
    assert_int_equal(ranks_lines("rows.csv"), 2);
}

PROGRAM("bench_roofline", bench_main_roofline)
