/* SPDX-License-Identifier: MIT */
/* What a GPU's health is read from: NVML, by a library in its place (tests/preload/nvml.c), the kernel log, and /proc. */
#include "tests/support/test.h"

#include <dlfcn.h>

#include "common/device/health.h"
#include "common/qualify/reference.h"

TEST(xids_of_one_gpu)
{
    static const char log[] = "4,1,2,-;NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
                              "4,1,2,-;NVRM: Xid (PCI:0000:1B:00): 79, again\n"
                              "4,1,2,-;NVRM: Xid (PCI:0000:43:00): 48, another GPU\n"
                              "4,1,2,-;NVRM: Xid (PCI:0000:1b:00): 7, no prefix of 79\n"
                              "4,1,2,-;NVRM: Xid (PCI:0000:1b:00";
    char xids[64] = "31";
    health_scan_xids(log, "0000:1b:00", xids, sizeof xids);
    assert_string_equal(xids, "31+79+7");
    char small[6] = "";
    health_scan_xids(log, "0000:1b:00", small, sizeof small);
    assert_string_equal(small, "79+7");
}

TEST(a_process_in_words)
{
    char text[256], pid[32];
    snprintf(pid, sizeof pid, "pid %d, ", (int)getpid());
    health_describe((int)getpid(), text, sizeof text);
    assert_non_null(strstr(text, pid));
    assert_non_null(strstr(text, "test_health"));
    assert_non_null(strstr(text, ", since 20"));
    health_describe(4194305, text, sizeof text);
    assert_string_equal(text, "pid 4194305, which is not visible here");
}

TEST(what_nvml_says)
{
    const char *cc = getenv("CC");
    OWNED char *path = folder_path(*state, "nvml.so");
    /* A library that has this name already is the one that is opened. */
    OWNED char *command =
        xasprintf("%s -std=c11 -D_GNU_SOURCE -Wall -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o '%s' "
                  "tests/preload/nvml.c",
                  cc && *cc ? cc : "cc", path);
    assert_int_equal(system(command), 0);
    assert_non_null(dlopen(path, RTLD_NOW | RTLD_LOCAL));
    gpu_health before[8];
    assert_int_equal(health_watch(before, 8, 0.01), 4);
    assert_string_equal(before[1].uuid, "GPU-1");
    assert_true(before[0].nvlink_errors == 400 && before[0].nvlink_crc == 200 && before[0].pcie_replays == 5);
    assert_true(before[0].xids_known && isnan(before[0].ecc_uncorrected)); /* a function that is not there */
    assert_string_equal(before[0].who, "");
    assert_non_null(strstr(before[1].who, "test_health"));
    assert_non_null(strstr(before[1].who, "; pid 4194305, which is not visible here"));

    const gpu_health after = health_since(&before[1]); /* three counters of link 1, each read three reads later */
    assert_true(after.nvlink_errors == 6 && after.nvlink_crc == 3 && after.pcie_replays == 0);
    assert_true(after.seconds > 0 && after.seconds < 60);
    assert_string_equal(after.xids, "74"); /* 31 is the other GPU's */
    assert_string_equal(after.who, before[1].who);
    for (size_t i = 0; i < 4; i++) { /* one of four is loaded, and it alone is named */
        char why[512];
        before[i].nvlink_errors = before[i].nvlink_crc = NAN;
        assert_int_equal(qualify_health(before, 4, i, "", why, sizeof why), i == 1 ? VERDICT_BUSY : VERDICT_OK);
        text_has(why, i == 1 ? "kept it 97 % busy before we began; 3.0 GiB of its memory were taken before we began; "
                               "there was pid "
                             : "");
    }
    const gpu_health unknown = health_unknown(), still = health_since(&unknown);
    assert_true(isnan(still.nvlink_errors) && !still.xids_known);
}

TESTS_WITH(folder_create, folder_remove)
