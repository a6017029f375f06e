/* SPDX-License-Identifier: MIT */
/* Messages, exit codes and the current phase; see error.h. */
#include "common/core/error.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/core/clock.h"

enum { PROGRAM_BYTES = 128, PHASE_BYTES = 256, MESSAGE_BYTES = 4096 };

static pthread_mutex_t phase_lock = PTHREAD_MUTEX_INITIALIZER;
static char phase_text[PHASE_BYTES];
static char program[PROGRAM_BYTES] = "stepbench";

char *text_printable(char *text)
{
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    return text;
}

/* On stderr by one write: lines of ranks that share it stay whole. From glibc 2.37 on, fprintf writes a line in parts. */
static void line(const char *fmt, ...)
{
    char text[PROGRAM_BYTES + MESSAGE_BYTES + PHASE_BYTES + sizeof ":  (while: )\n"];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fputs(text, stderr);
}

/* With STEPBENCH_PHASES set, a line on stderr for each phase that ends: of which process, how long it took, its name. */
static void phase_report(const char *next)
{
    static double since;
    const double now = host_seconds();
    if (strcmp(phase_text, next) == 0)
        return;
    if (*phase_text && getenv("STEPBENCH_PHASES"))
        line("%s[%d]: %8.3f s: %s\n", program, (int)getpid(), now - since, phase_text);
    since = now;
}

void phase_set(const char *fmt, ...)
{
    char text[PHASE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    text_printable(text);
    pthread_mutex_lock(&phase_lock);
    phase_report(text);
    memcpy(phase_text, text, sizeof text);
    pthread_mutex_unlock(&phase_lock);
}

const char *phase_get(void)
{
    /* A copy of this thread's own: the watchdog reads while the main thread sets. */
    static _Thread_local char copy[PHASE_BYTES];
    pthread_mutex_lock(&phase_lock);
    memcpy(copy, phase_text, sizeof copy);
    pthread_mutex_unlock(&phase_lock);
    return copy;
}

void program_name_set(const char *argv0)
{
    const char *slash = strrchr(argv0, '/');
    snprintf(program, sizeof program, "%s", slash ? slash + 1 : argv0);
}

const char *program_name(void)
{
    return program;
}

static void message(const char *fmt, va_list args, const char *phase)
{
    char text[MESSAGE_BYTES];
    vsnprintf(text, sizeof text, fmt, args);
    text_printable(text);
    if (phase && *phase)
        line("%s: %s (while: %s)\n", program, text, phase);
    else
        line("%s: %s\n", program, text);
}

void warn(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    message(fmt, args, NULL);
    va_end(args);
}

static void (*clean_up)(void);

static void clean_up_once(void)
{
    void (*const clean)(void) = clean_up;
    clean_up = NULL; /* it may die */
    if (clean)
        clean();
}

void clean_up_with(void (*clean)(void))
{
    clean_up = clean;
    atexit(clean_up_once);
}

void die(int code, const char *fmt, ...)
{
    fflush(stdout);
    va_list args;
    va_start(args, fmt);
    message(fmt, args, code == EXIT_CODE_USAGE ? NULL : phase_get());
    va_end(args);
    fflush(stderr); /* it may be a file */
    clean_up_once();
    /* No exit handlers: a driver's or a library's may wait for the very device that is stuck. */
    _exit(code);
}

static void check_stdout(int code, void *nothing)
{
    (void)nothing;
    const bool earlier = ferror(stdout);
    if (fflush(stdout) == 0 && !earlier)
        return;
    warn("stdout can't be written%s%s: a part of the output is lost", earlier ? "" : ": ",
         earlier ? "" : strerror(errno));
    if (code == EXIT_CODE_OK)
        _exit(EXIT_CODE_FAILURE);
}

__attribute__((constructor)) static void guard_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) /* the lowest that is free */
            _exit(EXIT_CODE_FAILURE);
    on_exit(check_stdout, NULL);
}

/* A large array comes in pages of 2 MiB where the system has some: to touch it first takes a fifth of the time. */
static void *in_large_pages(void *p, unsigned long bytes)
{
    const unsigned long large = 64ul << 20, page = (unsigned long)sysconf(_SC_PAGESIZE);
    char *first = (char *)p + (page - (unsigned long)p % page) % page;
    if (bytes >= large)
        (void)madvise(first, (bytes - page) / page * page, MADV_HUGEPAGE);
    return p;
}

void *xmalloc(unsigned long bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        die(EXIT_CODE_FAILURE, "no host memory left for %lu bytes", bytes);
    return in_large_pages(p, bytes);
}

void *xcalloc(unsigned long n, unsigned long size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);
    if (!p)
        die(EXIT_CODE_FAILURE, "no host memory left for %lu x %lu bytes", n, size);
    return in_large_pages(p, n * size);
}

void *xrealloc(void *old, unsigned long bytes)
{
    void *p = realloc(old, bytes ? bytes : 1);
    if (!p)
        die(EXIT_CODE_FAILURE, "no host memory left for %lu bytes", bytes);
    return p;
}

char *xstrdup(const char *s)
{
    size_t bytes = strlen(s) + 1;
    return memcpy(xmalloc(bytes), s, bytes);
}

char *xasprintf(const char *fmt, ...)
{
    char *text;
    va_list args;
    va_start(args, fmt);
    int length = vasprintf(&text, fmt, args);
    va_end(args);
    if (length < 0)
        die(EXIT_CODE_FAILURE, "no host memory left for a message");
    return text;
}

FILE *text_stream(char **text, unsigned long *bytes)
{
    *text = NULL;
    *bytes = 0;
    FILE *out = open_memstream(text, bytes);
    if (!out)
        die(EXIT_CODE_FAILURE, "out of host memory");
    return out;
}

char *file_read(const char *path, unsigned long *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    unsigned long used = 0, capacity = 1 << 16, got;
    char *text = xmalloc(capacity);
    while ((got = fread(text + used, 1, capacity - used - 1, file)) > 0) {
        used += got;
        if (used + 1 == capacity)
            text = xrealloc(text, capacity *= 2);
    }
    int error = ferror(file) ? errno : 0;
    fclose(file);
    if (error) {
        free(text);
        errno = error;
        return NULL;
    }
    text[used] = '\0';
    *bytes = used;
    return text;
}

void text_json(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f)
            fprintf(out, "\\u%04x", *c);
        else
            fputc(*c, out);
    fputc('"', out);
}
