/* SPDX-License-Identifier: MIT */
/* Appending under a lock; see append.h. */
#include "common/profile/append.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/core/error.h"

static bool write_all(int fd, const char *text, off_t at)
{
    for (size_t left = strlen(text); left;) {
        const ssize_t n = pwrite(fd, text, left, at);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0) {
            text += n;
            at += n;
            left -= (size_t)n;
        }
    }
    return true;
}

static bool ends_in(int fd, off_t size, const char *tail)
{
    char end[16];
    const size_t n = strlen(tail);
    return n < sizeof end && size >= (off_t)n && pread(fd, end, n, size - (off_t)n) == (ssize_t)n &&
           memcmp(end, tail, n) == 0;
}

static bool append_locked(int fd, const char *head, const char *joint, const char *text, const char *tail)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return false;
    const bool fresh = info.st_size == 0;
    if (!fresh && !ends_in(fd, info.st_size, tail)) {
        errno = EINVAL;
        return false;
    }
    /* One write: whoever dies in it leaves at worst an incomplete last line. */
    OWNED char *whole = xasprintf("%s%s%s", fresh ? head : joint, text, tail);
    return write_all(fd, whole, fresh ? 0 : info.st_size - (off_t)strlen(tail));
}

bool append_text(const char *path, const char *head, const char *joint, const char *text, const char *tail)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return false;
    bool ok = flock(fd, LOCK_EX) == 0 && append_locked(fd, head, joint, text, tail);
    const int error = errno;
    if (close(fd) != 0 && ok)
        return false;
    if (!ok)
        errno = error;
    return ok;
}
