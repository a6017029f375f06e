/* SPDX-License-Identifier: MIT */
/* Opens token files without trusting them; see tokens.h. llm.c's header: magic 20240520, version 1, tokens. The header of
 * .npy: docs of numpy.lib.format, versions 1 to 3. */
#include "common/data/tokens.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/core/error.h"

enum { LLMC_MAGIC = 20240520, LLMC_HEADER = 1024, NPY_PREFIX = 12, NPY_HEADER = 1024 };

struct token_file {
    int fd;
    unsigned char head[NPY_PREFIX + NPY_HEADER]; /* how the file begins */
    size_t bytes, at;                            /* where tokens begin */
    int64_t count;
    int width; /* bytes of a token */
    const char *format;
};

static int32_t int_at(const unsigned char *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static bool refuse(char *why, size_t why_bytes, const char *path, const char *reason)
{
    snprintf(why, why_bytes, "%s: %s", path, reason);
    return false;
}

static bool open_llmc(token_file *f, const char *path, char *why, size_t why_bytes)
{
    char reason[160];
    const int32_t version = int_at(f->head + 4);
    f->format = "llm.c", f->width = 2, f->at = LLMC_HEADER;
    f->count = int_at(f->head + 8);
    if (version != 1) {
        snprintf(reason, sizeof reason, "version %d of llm.c's token files is unknown; only version 1 is read",
                 version);
        return refuse(why, why_bytes, path, reason);
    }
    if (f->count < 0 || (uint64_t)f->count * 2 != f->bytes - LLMC_HEADER) {
        snprintf(reason, sizeof reason, "the header says %lld tokens, and %zu bytes follow it", (long long)f->count,
                 f->bytes - LLMC_HEADER);
        return refuse(why, why_bytes, path, reason);
    }
    return true;
}

/* The text behind 'key': in a header that is a Python dict; NULL when it is not there. */
static const char *value_of(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (!at)
        return NULL;
    at += strlen(key);
    while (*at == ' ' || *at == ':')
        at++;
    return at;
}

/* '<u2' and so on. 0: another dtype. */
static int npy_width(const char *descr)
{
    static const struct {
        const char *text;
        int width;
    } known[] = {{"'<u2'", 2}, {"'<u4'", 4}, {"'<i4'", 4}};
    for (size_t i = 0; descr && i < sizeof known / sizeof *known; i++)
        if (strncmp(descr, known[i].text, 5) == 0)
            return known[i].width;
    return 0;
}

/* "(123,)"; -1: another shape. */
static int64_t npy_count(const char *shape)
{
    char *end;
    if (!shape || *shape != '(' || !isdigit((unsigned char)shape[1]))
        return -1;
    errno = 0;
    const long long n = strtoll(shape + 1, &end, 10);
    return errno == 0 && strncmp(end, ",)", 2) == 0 ? n : -1;
}

static bool open_npy(token_file *f, const char *path, char *why, size_t why_bytes)
{
    const int prefix = f->bytes > 10 && f->head[6] >= 2 ? NPY_PREFIX : 10;
    char header[NPY_HEADER], reason[160];
    if (f->bytes < (size_t)prefix)
        return refuse(why, why_bytes, path, "the file ends within its header");
    const size_t length = prefix == NPY_PREFIX ? (uint32_t)int_at(f->head + 8) : (size_t)(f->head[8] | f->head[9] << 8);
    if (length >= sizeof header || length > f->bytes - (size_t)prefix)
        return refuse(why, why_bytes, path, "the header of this .npy is longer than the file or than 1023 bytes");
    memcpy(header, f->head + prefix, length);
    header[length] = 0;
    f->format = "npy", f->at = (size_t)prefix + length;
    f->width = npy_width(value_of(header, "'descr'"));
    f->count = npy_count(value_of(header, "'shape'"));
    if (!f->width)
        return refuse(why, why_bytes, path, "tokens must be little-endian uint16, uint32 or int32, and these are not");
    if (f->count < 0)
        return refuse(why, why_bytes, path, "tokens must have one axis, and these have not");
    if ((uint64_t)f->count != (f->bytes - f->at) / (uint64_t)f->width || (f->bytes - f->at) % (size_t)f->width) {
        snprintf(reason, sizeof reason, "the header says %lld tokens, and %zu bytes follow it", (long long)f->count,
                 f->bytes - f->at);
        return refuse(why, why_bytes, path, reason);
    }
    return true;
}

static bool open_as(token_file *f, const char *path, char *why, size_t why_bytes)
{
    if (f->bytes >= 6 && memcmp(f->head, "\x93NUMPY", 6) == 0)
        return open_npy(f, path, why, why_bytes);
    if (f->bytes >= LLMC_HEADER && int_at(f->head) == LLMC_MAGIC)
        return open_llmc(f, path, why, why_bytes);
    f->format = "uint16", f->width = 2, f->count = (int64_t)(f->bytes / 2);
    return f->bytes % 2 == 0 || refuse(why, why_bytes, path, "a file of uint16 has an even number of bytes");
}

token_file *tokens_open(const char *path, char *why, size_t why_bytes)
{
    struct stat about;
    token_file *f = xcalloc(1, sizeof *f);
    f->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a FIFO would wait for its writer */
    bool ok = f->fd >= 0 && fstat(f->fd, &about) == 0;
    if (ok && (!S_ISREG(about.st_mode) || about.st_size == 0)) {
        ok = refuse(why, why_bytes, path, S_ISREG(about.st_mode) ? "the file is empty" : "it is not a file");
    } else if (!ok || pread(f->fd, f->head, sizeof f->head, 0) < 0) {
        ok = refuse(why, why_bytes, path, strerror(errno));
    } else {
        f->bytes = (size_t)about.st_size;
        ok = open_as(f, path, why, why_bytes);
    }
    if (ok)
        return f;
    tokens_close(f);
    return NULL;
}

void tokens_close(token_file *f)
{
    if (f && f->fd >= 0)
        close(f->fd);
    free(f);
}

int64_t tokens_count(const token_file *f)
{
    return f->count;
}

const char *tokens_format(const token_file *f)
{
    return f->format;
}

bool tokens_read(const token_file *f, int64_t first, int n, int32_t *out)
{
    const size_t bytes = (size_t)n * (size_t)f->width;
    /* Narrow tokens are at the end of `out` first, where none is overwritten before it was widened. */
    unsigned char *from = (unsigned char *)(out + n) - bytes;
    if (pread(f->fd, from, bytes, (off_t)f->at + first * f->width) != (ssize_t)bytes)
        return false;
    for (int i = 0; i < n; i++, from += f->width) {
        uint16_t small;
        memcpy(&small, from, sizeof small);
        out[i] = f->width == 2 ? small : int_at(from) < 0 ? -1 : int_at(from);
    }
    return true;
}
