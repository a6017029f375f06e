/* SPDX-License-Identifier: MIT */
/* The quota of a control group, of both versions, from files as the kernel writes them. */
#include "tests/support/test.h"

#include "common/device/host.h"

TEST_IN_FOLDER(a_quota_is_read)
{
    static const struct {
        const char *group, *file, *text, *other, *more;
        double cpus;
    } table[] = {
        {"0::/", "cpu.max", "150000 100000", NULL, NULL, 1.5},
        {"0::/", "cpu.max", "max 100000", NULL, NULL, NAN},
        {"0::/", "memory.max", "max", NULL, NULL, NAN},
        {"0::/a/b", "a/b/cpu.max", "max 100000", "a/cpu.max", "400000 100000", 4},
        {"0::/a/b", "a/b/cpu.max", "800000 100000", "cpu.max", "200000 100000", 2},
        {"0::/a/b", "a/b/c/cpu.max", "50000 100000", "a/b/cpu.max", "800000 100000", 8},
        {"0::/gone", "cpu.max", "200000 100000", NULL, NULL, 2},
        {"3:cpuset:/s\n4:cpu,cpuacct:/", "cpu/cpu.cfs_quota_us", "250000", "cpu/cpu.cfs_period_us", "100000", 2.5},
        {"4:cpu,cpuacct:/j", "cpu,cpuacct/j/cpu.cfs_quota_us", "50000", "cpu,cpuacct/j/cpu.cfs_period_us", "100000",
         0.5},
        {"4:cpu:/", "cpu/cpu.cfs_quota_us", "-1", "cpu/cpu.cfs_period_us", "100000", NAN},
        {"4:memory:/", "cpu/cpu.cfs_quota_us", "50000", NULL, NULL, NAN},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        OWNED char *root = xasprintf("%s/%zu", (char *)*state, i), *folders = xasprintf("mkdir -p %s/proc/self", root);
        assert_int_equal(system(folders), 0);
        const char *const files[][2] = {{table[i].file, table[i].text}, {table[i].other, table[i].more}};
        for (size_t k = 0; k < 2 && files[k][0]; k++) {
            OWNED char *put = xasprintf("f='%s/sys/fs/cgroup/%s'; mkdir -p \"${f%%/*}\" && echo '%s' >\"$f\"", root,
                                        files[k][0], files[k][1]);
            assert_int_equal(system(put), 0);
        }
        OWNED char *path = folder_path(root, "proc/self/cgroup"), *group = xasprintf("%s\n", table[i].group);
        file_write(path, group);
        const double cpus = host_cpu_quota(root);
        if (isnan(table[i].cpus) ? !isnan(cpus) : cpus != table[i].cpus)
            fail_msg("quota %zu: %g CPUs, not %g", i, cpus, table[i].cpus);
    }
    assert_true(isnan(host_cpu_quota("/nowhere")));
}
