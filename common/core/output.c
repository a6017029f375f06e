/* SPDX-License-Identifier: MIT */
/* See output.h. */
#include "common/core/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/core/error.h"

static FILE *taken; /* the stdout that the program began with; NULL: not set apart */
static bool for_records;

FILE *output(void)
{
    return taken && !for_records ? taken : stdout;
}

void say(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vfprintf(output(), fmt, args);
    va_end(args);
}

FILE *output_take(bool records)
{
    fflush(stdout);
    const int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        die(EXIT_CODE_FAILURE, "stdout can't be set apart from what libraries print: %s", strerror(errno));
    setvbuf(file, NULL, _IOLBF, 0); /* lines show at once, also in a log */
    setvbuf(stdout, NULL, _IOLBF, 0);
    for_records = records;
    return taken = file;
}

bool output_give_back(void)
{
    FILE *file = taken;
    fflush(stdout); /* of libraries, to stderr */
    const bool failed = fflush(file) != 0 || ferror(file);
    const int error = errno;
    const bool restored = dup2(fileno(file), STDOUT_FILENO) >= 0;
    taken = NULL;
    fclose(file);
    if (failed || !restored)
        warn("stdout can't be written (%s): %s are lost", strerror(error), for_records ? "rows" : "lines of the table");
    return !failed && restored;
}

bool output_is_file(const char *path)
{
    struct stat info;
    const bool device = strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0;
    return lstat(path, &info) != 0 || S_ISREG(info.st_mode) || (S_ISLNK(info.st_mode) && !device);
}
