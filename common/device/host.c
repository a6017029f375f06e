/* SPDX-License-Identifier: MIT */
/* Facts about the host from /proc and /sys; see host.h. */
#include "common/device/host.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

void host_cpu_model(char *out, size_t bytes)
{
    struct utsname u;
    snprintf(out, bytes, "%s", uname(&u) == 0 ? u.machine : "unknown");
    FILE *f = fopen("/proc/cpuinfo", "r");
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
    if (f)
        fclose(f);
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
    FILE *f = fopen(path, "r");
    unsigned long long x;
    int got = f ? fscanf(f, "%llu", &x) : 0;
    if (f)
        fclose(f);
    return got == 1 ? (size_t)x : SIZE_MAX;
}

/* The number after `field` at the start of a line; 0 when absent. */
static size_t field_in(const char *path, const char *field)
{
    FILE *f = fopen(path, "r");
    char line[256];
    size_t x = 0, length = strlen(field);
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, field, length) == 0)
            x = (size_t)strtoull(line + length, NULL, 10);
    if (f)
        fclose(f);
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
