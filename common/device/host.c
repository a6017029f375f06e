/* SPDX-License-Identifier: MIT */
/* Facts about the host from /proc and /sys; see host.h. */
#include "common/device/host.h"

#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/core/error.h"

void host_cpu_model(char *out, size_t bytes)
{
    struct utsname u;
    snprintf(out, bytes, "%s", uname(&u) == 0 ? u.machine : "unknown");
    OWNED_FILE FILE *f = fopen("/proc/cpuinfo", "r");
    char line[512];
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            colon += 1 + strspn(colon + 1, " \t");
            colon[strcspn(colon, "\n")] = 0;
            snprintf(out, bytes, "%s", colon);
            break;
        }
    }
}

int host_cores(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

int host_cores_allowed(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : host_cores();
}

/* First number in a file of one number; SIZE_MAX for "max" or no such file. */
static size_t number_in(const char *path)
{
    OWNED_FILE FILE *f = fopen(path, "r");
    unsigned long long x;
    int got = f ? fscanf(f, "%llu", &x) : 0;
    return got == 1 ? (size_t)x : SIZE_MAX;
}

/* The first n numbers of a file; false when it has fewer, or the word "max". */
static bool numbers_in(const char *folder, const char *name, double *x, int n)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    OWNED_FILE FILE *f = fopen(path, "r");
    int got = 0;
    while (f && got < n && fscanf(f, "%lf", &x[got]) == 1)
        got++;
    return got == n;
}

/* Version 2 has quota and period in one file, version 1 in two; -1 is none. */
static double quota_of(const char *group)
{
    double x[2];
    const bool has = numbers_in(group, "cpu.max", x, 2) ||
                     (numbers_in(group, "cpu.cfs_quota_us", x, 1) && numbers_in(group, "cpu.cfs_period_us", x + 1, 1));
    return has && x[0] > 0 && x[1] > 0 ? x[0] / x[1] : NAN;
}

/* The least quota from the group at `path` up to the root of the hierarchy; fmin ignores NAN. */
static double least_quota(const char *root, const char *hierarchy, const char *path)
{
    char group[4096];
    const int base = snprintf(group, sizeof group, "%s/sys/fs/cgroup%s", root, hierarchy);
    double least = NAN;
    snprintf(group + base, sizeof group - (size_t)base, "%s", path);
    for (char *end = group + strlen(group); end; end = strrchr(group + base, '/')) {
        *end = '\0';
        least = fmin(least, quota_of(group));
    }
    return least;
}

double host_cpu_quota(const char *root)
{
    static const char *const hierarchies[] = {"", "/cpu", "/cpu,cpuacct"};
    double least = NAN;
    char path[4096], line[4096];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    OWNED_FILE FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) { /* "0::/group", or of version 1 "4:cpu,cpuacct:/group" */
        const char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        line[strcspn(line, "\n")] = '\0';
        for (size_t i = 0; group && i < sizeof hierarchies / sizeof *hierarchies; i++)
            if ((i == 0) == (controllers + 1 == group) &&
                (i == 0 || strncmp(controllers, ":cpu:", 5) == 0 || strncmp(controllers, ":cpu,", 5) == 0))
                least = fmin(least, least_quota(root, hierarchies[i], group + 1));
    }
    return least;
}

/* The number after `field` at the start of a line; 0 when absent. */
static size_t field_in(const char *path, const char *field)
{
    OWNED_FILE FILE *f = fopen(path, "r");
    char line[256];
    size_t x = 0, length = strlen(field);
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, field, length) == 0)
            x = (size_t)strtoull(line + length, NULL, 10);
    return x;
}

/* The control group's limit (SIZE_MAX: none) and what it holds, without file pages that would be dropped first. Inside
 * a container the root of the mounted hierarchy is the container's own group. */
static size_t group_limit(size_t *held)
{
    size_t limit = number_in("/sys/fs/cgroup/memory.max"), used, cached;
    if (limit != SIZE_MAX) {
        used = number_in("/sys/fs/cgroup/memory.current");
        cached = field_in("/sys/fs/cgroup/memory.stat", "inactive_file ");
    } else {
        limit = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes");
        used = number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes");
        cached = field_in("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file ");
    }
    *held = used != SIZE_MAX && used > cached ? used - cached : 0;
    return limit;
}

size_t host_memory_bytes(void)
{
    size_t machine = field_in("/proc/meminfo", "MemTotal:") * 1024, held, limit = group_limit(&held);
    return limit < machine ? limit : machine;
}

size_t host_available_bytes(void)
{
    size_t machine = field_in("/proc/meminfo", "MemAvailable:") * 1024, held, limit = group_limit(&held);
    size_t group = limit > held ? limit - held : 0;
    return group < machine ? group : machine;
}
