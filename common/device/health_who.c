/* SPDX-License-Identifier: MIT */
/* A process in words, from /proc; see health.h. */
#include "common/device/health.h"

#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/core/error.h"

/* The first bytes of a file of /proc/PID; false where there is none. Zeros between words become blanks. */
static bool proc_read(int pid, const char *name, char *out, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    OWNED_FILE FILE *f = fopen(path, "r");
    const size_t n = f ? fread(out, 1, bytes - 1, f) : 0;
    out[n] = 0;
    for (size_t i = 0; i + 1 < n; i++)
        out[i] = out[i] == 0 || out[i] == '\n' ? ' ' : out[i];
    return n > 0;
}

/* When it started; 0: not known. Field 22 of its stat is in ticks since the host did; names may have blanks. */
static time_t started(int pid)
{
    char stat[1024], uptime[64];
    unsigned long long ticks;
    double up;
    const char *behind_name = proc_read(pid, "stat", stat, sizeof stat) ? strrchr(stat, ')') : NULL;
    OWNED_FILE FILE *f = fopen("/proc/uptime", "r");
    const bool known = f && fgets(uptime, sizeof uptime, f) && sscanf(uptime, "%lf", &up) == 1;
    if (!known || !behind_name ||
        sscanf(behind_name, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &ticks) != 1)
        return 0;
    return time(NULL) - (time_t)(up - (double)ticks / (double)sysconf(_SC_CLK_TCK));
}

void health_describe(int pid, char *out, size_t bytes)
{
    char path[64], command[96], since[32] = "";
    struct stat owner;
    struct tm at;
    snprintf(path, sizeof path, "/proc/%d", pid);
    if (stat(path, &owner) != 0) {
        snprintf(out, bytes, "pid %d, which is not visible here", pid);
        return;
    }
    const struct passwd *user = getpwuid(owner.st_uid);
    char number[16];
    snprintf(number, sizeof number, "uid %u", (unsigned)owner.st_uid);
    if (!proc_read(pid, "cmdline", command, sizeof command) && !proc_read(pid, "comm", command, sizeof command))
        snprintf(command, sizeof command, "unknown");
    const time_t start = started(pid);
    if (start && localtime_r(&start, &at))
        strftime(since, sizeof since, ", since %Y-%m-%d %H:%M", &at);
    snprintf(out, bytes, "pid %d, %s, %s%s", pid, user ? user->pw_name : number, command, since);
}
