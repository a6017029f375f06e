/* SPDX-License-Identifier: MIT */
/* Exit codes, and the one way to stop with a message. No function here touches a device. A program with this file in it
 * says so when its stdout could not be written, and then exits with 1 instead of 0; standard streams that are closed when it
 * starts become /dev/null, so that no file of ours takes their place. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum exit_code {
    EXIT_CODE_OK = 0,
    EXIT_CODE_FAILURE = 1,     /* something broke at run time */
    EXIT_CODE_USAGE = 2,       /* bad input: one clear sentence was printed */
    EXIT_CODE_VERIFY = 3,      /* a kernel gave a wrong result; it has a row `fail` and no speed */
    EXIT_CODE_GATE = 4,        /* a requested bound was missed */
    EXIT_CODE_TIMEOUT = 5,     /* no progress for --timeout seconds */
    EXIT_CODE_UNSUPPORTED = 77 /* nothing of what was asked can run here */
};

/* What the program is doing now, for messages and the watchdog. `text` is copied (at most 255 bytes). Thread-safe. With
 * STEPBENCH_PHASES in the environment, how long each took is a line on stderr. */
void phase_set(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
const char *phase_get(void);

/* One line on stderr: "<program>: <message>". `die` then exits with `code`; at run time errors it adds the phase. */
void warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void die(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* `clean` runs once when the program ends: at exit, and in `die`, which runs no exit handlers. */
void clean_up_with(void (*clean)(void));
void program_name_set(const char *argv0);
const char *program_name(void);

/* Replaces control characters, which an argument may bring along, by '?': a message stays one line. Returns text. */
char *text_printable(char *text);

/* malloc that dies instead of returning NULL; for host bookkeeping, not for tensors. */
void *xmalloc(unsigned long bytes);
void *xcalloc(unsigned long n, unsigned long size);
void *xrealloc(void *p, unsigned long bytes);
char *xstrdup(const char *s);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Puts a value behind the `count` elements of a list with room for `room`, which doubles when it is full. */
#define LIST_ADD(list, count, room, ...)                                                                               \
    do {                                                                                                               \
        if ((count) == (room)) {                                                                                       \
            (room) = (room) ? 2 * (room) : 64;                                                                         \
            (list) = xrealloc((list), (unsigned long)(room) * sizeof *(list));                                         \
        }                                                                                                              \
        (list)[(count)++] = (__VA_ARGS__);                                                                             \
    } while (0)

FILE *text_stream(char **text,
                  unsigned long *bytes); /* writes to memory; *text is for the caller to free after fclose */

void text_json(FILE *out, const char *text); /* as a string of JSON, in quotes */

/* A whole file with a NUL behind its bytes; NULL with errno. Caller frees. */
char *file_read(const char *path, unsigned long *bytes);

/* What the pointer owns is freed where its name ends: OWNED char *path = xasprintf(...). */
#define OWNED __attribute__((cleanup(owned_free)))
static inline void owned_free(void *pointer)
{
    free(*(void **)pointer);
}

/* A file that is closed where its name ends; it may be none. */
#define OWNED_FILE __attribute__((cleanup(owned_close)))
static inline void owned_close(FILE **file)
{
    if (*file)
        fclose(*file);
}

/* Closes a file that was written. False: there is none, or a part of it was lost, now or earlier. */
static inline bool file_close(FILE *file)
{
    const bool whole = file && !ferror(file);
    return file && fclose(file) == 0 && whole;
}
