/* SPDX-License-Identifier: MIT */
/* Appending to a CSV so that nothing is ever lost. The file is opened for each row: one that was moved or deleted
 * during a run, by a checkout for example, starts anew instead of swallowing rows. */
#include "common/core/error.h"
#include "common/core/output.h"
#include "common/rows/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

_Noreturn static void die_for(const char *path, const char *action, int code)
{
    die(code, "cannot %s %s: %s", action, path, strerror(errno));
}

static void make_parents(const char *path, int code)
{
    OWNED char *folder = xstrdup(path);
    for (char *slash = *folder ? strchr(folder + 1, '/') : NULL; slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0777) != 0 && errno != EEXIST)
            die_for(folder, "create the folder", code);
        *slash = '/';
    }
}

/* Opens and locks; the lock ends with the descriptor. */
static int open_locked(const char *path, struct stat *info, int code)
{
    for (;;) {
        int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            die_for(path, "open", code);
        /* A file system without locks is no reason to measure nothing. */
        while (flock(fd, LOCK_EX) != 0 && errno == EINTR)
            ;
        struct stat named;
        if (fstat(fd, info) != 0)
            die_for(path, "look at", code);
        if (stat(path, &named) == 0 && named.st_ino == info->st_ino && named.st_dev == info->st_dev)
            return fd;
        close(fd); /* moved away while we waited for the lock */
    }
}

static void write_all(int fd, const char *path, const char *text, size_t bytes)
{
    struct stat before;
    const bool known = fstat(fd, &before) == 0;
    ssize_t wrote;
    do
        wrote = write(fd, text, bytes);
    while (wrote < 0 && errno == EINTR);
    if (wrote >= 0 && (size_t)wrote < bytes)
        errno = ENOSPC; /* a short write to a file */
    if (wrote < 0 || (size_t)wrote < bytes) {
        const int error = errno;
        if (known && wrote > 0 && ftruncate(fd, before.st_size) != 0) /* half a row is none */
            warn("cannot take back half a row of %s: %s", path, strerror(errno));
        errno = error;
        die_for(path, "write a row to", EXIT_CODE_FAILURE);
    }
}

static bool starts_with_line(int fd, const char *line)
{
    size_t bytes = strlen(line) + 1;
    OWNED char *start = xmalloc(bytes);
    ssize_t got = pread(fd, start, bytes, 0);
    return got == (ssize_t)bytes && memcmp(start, line, bytes - 1) == 0 && start[bytes - 1] == '\n';
}

static void move_aside(const char *path, int code)
{
    size_t length = strlen(path);
    if (length > 4 && strcmp(path + length - 4, ".csv") == 0)
        length -= 4;
    for (int n = 1;; n++) {
        char *aside = xasprintf("%.*s.%d.csv", (int)length, path, n);
        if (access(aside, F_OK) != 0) {
            if (rename(path, aside) != 0)
                die_for(path, "move aside", code);
            warn("%s has other columns and was moved to %s", path, aside);
            free(aside);
            return;
        }
        free(aside);
    }
}

/* A writer that was killed may leave half a row: end it, and the quoted cell it may be in, so that it stays one row. */
static void end_torn_line(int fd, const char *path, off_t size)
{
    bool torn = false, quoted = false;
    char c;
    for (off_t at = size - 1; at >= 0 && pread(fd, &c, 1, at) == 1 && c != '\n'; at--) {
        torn = true;
        quoted ^= c == '"';
    }
    if (torn)
        write_all(fd, path, quoted ? "\"\n" : "\n", quoted ? 2 : 1);
}

void rows_append(const char *path, const char *header, const char *line)
{
    struct stat info;
    const int code = line ? EXIT_CODE_FAILURE : EXIT_CODE_USAGE; /* before the first row, the path is what is wrong */
    if (!output_is_file(path)) /* a pipe loses rows when its reader closes, and other files are written beside it */
        die(code, "--csv needs a file, which %s is not; - is stdout, and none stores no rows", path);
    make_parents(path, code);
    int fd = open_locked(path, &info, code);
    if (info.st_size > 0 && !starts_with_line(fd, header)) {
        OWNED char *file = realpath(path, NULL); /* a link stays where it is */
        move_aside(file ? file : path, code);
        close(fd);
        fd = open_locked(path, &info, code);
    }
    if (info.st_size == 0) {
        OWNED char *text = xasprintf("%s\n", header);
        write_all(fd, path, text, strlen(text));
    } else {
        end_torn_line(fd, path, info.st_size);
    }
    if (line)
        write_all(fd, path, line, strlen(line));
    close(fd);
}
