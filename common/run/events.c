/* SPDX-License-Identifier: MIT */
/* Writes and checks event files of TensorBoard; see events.h. */
#include "common/run/events.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

enum { RECORD_MAX = 512, VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

struct events {
    FILE *file;
    uint32_t wrong; /* added to each CRC */
};

/* ---- CRC-32C (Castagnoli), reflected ---- */

/* Bit by bit: records are short and few. */
static uint32_t crc32c(const unsigned char *p, size_t n)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82f63b78u & -(crc & 1));
    }
    return ~crc;
}

static uint32_t masked(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* ---- protobuf, as far as scalars need it; numbers are little-endian as in memory ---- */

typedef struct message {
    unsigned char bytes[RECORD_MAX];
    size_t n;
} message;

static void put(message *m, const void *p, size_t n)
{
    if (m->n + n > RECORD_MAX)
        die(EXIT_CODE_FAILURE, "bug: an event has more than %d bytes", RECORD_MAX);
    memcpy(m->bytes + m->n, p, n);
    m->n += n;
}

static void put_varint(message *m, uint64_t x)
{
    for (; x >= 128; x >>= 7)
        put(m, &(unsigned char){(unsigned char)(x | 128)}, 1);
    put(m, &(unsigned char){(unsigned char)x}, 1);
}

static void put_key(message *m, int field, int wire)
{
    put_varint(m, (uint64_t)(field << 3 | wire));
}

static void put_bytes(message *m, int field, const void *p, size_t n)
{
    put_key(m, field, BYTES);
    put_varint(m, n);
    put(m, p, n);
}

/* Event: double wall_time = 1, int64 step = 2, string file_version = 3, Summary summary = 5. */
static message event(double wall_s, int64_t step)
{
    message m = {.n = 0};
    put_key(&m, 1, FIXED64);
    put(&m, &wall_s, sizeof wall_s);
    put_key(&m, 2, VARINT);
    put_varint(&m, (uint64_t)step);
    return m;
}

static void write_record(events *e, const message *m)
{
    const uint64_t length = m->n;
    const uint32_t of_length = masked(crc32c((const unsigned char *)&length, sizeof length)) + e->wrong;
    const uint32_t of_data = masked(crc32c(m->bytes, m->n)) + e->wrong;
    fwrite(&length, sizeof length, 1, e->file);
    fwrite(&of_length, sizeof of_length, 1, e->file);
    fwrite(m->bytes, 1, m->n, e->file);
    fwrite(&of_data, sizeof of_data, 1, e->file);
}

/* ---- files ---- */

events *events_open(const char *path, double wall_s)
{
    static const char version[] = "brain.Event:2";
    FILE *file = fopen(path, "wb");
    if (!file)
        return NULL;
    events *e = xcalloc(1, sizeof *e);
    e->file = file;
    message m = event(wall_s, 0);
    put_bytes(&m, 3, version, sizeof version - 1);
    write_record(e, &m);
    return e;
}

/* Summary: repeated Value value = 1; Value: string tag = 1, float simple_value = 2. */
void events_scalar(events *e, double wall_s, int64_t step, const char *tag, double value)
{
    const float single = (float)value;
    message m = event(wall_s, step), inner = {.n = 0}, summary = {.n = 0};
    put_bytes(&inner, 1, tag, strlen(tag));
    put_key(&inner, 2, FIXED32);
    put(&inner, &single, sizeof single);
    put_bytes(&summary, 1, inner.bytes, inner.n);
    put_bytes(&m, 5, summary.bytes, summary.n);
    write_record(e, &m);
}

void events_flush(events *e)
{
    fflush(e->file);
}

bool events_close(events *e)
{
    if (!e)
        return true;
    const bool ok = file_close(e->file);
    free(e);
    return ok;
}

void events_plant(events *e)
{
    e->wrong = 1;
}

/* ---- reading again ---- */

static const char *problem_of(FILE *f, message *m, bool *end)
{
    uint64_t length;
    uint32_t crc;
    *end = fread(&length, 1, sizeof length, f) == 0 && feof(f);
    if (*end)
        return NULL;
    if (ferror(f) || fread(&crc, sizeof crc, 1, f) != 1)
        return "is cut";
    if (crc != masked(crc32c((const unsigned char *)&length, sizeof length)))
        return "has a wrong CRC of its length";
    if (length > sizeof m->bytes)
        return "is longer than any that is written";
    if (fread(m->bytes, 1, length, f) != length || fread(&crc, sizeof crc, 1, f) != 1)
        return "is cut";
    m->n = length;
    return crc == masked(crc32c(m->bytes, length)) ? NULL : "has a wrong CRC of its data";
}

/* As `event` puts it, behind the time. */
static int64_t step_of(const message *m)
{
    enum { STEP = 10 };
    uint64_t step = 0;
    for (size_t i = STEP, shift = 0; i < m->n && shift < 64; i++, shift += 7) {
        step |= (uint64_t)(m->bytes[i] & 127) << shift;
        if (m->bytes[i] < 128)
            break;
    }
    return (int64_t)step;
}

void events_copy(events *e, const char *path, int64_t last)
{
    OWNED_FILE FILE *f = fopen(path, "rb");
    message m;
    bool end = false, version = true; /* which ours has already */
    while (f && !problem_of(f, &m, &end) && !end) {
        if (!version && step_of(&m) <= last)
            write_record(e, &m);
        version = false;
    }
}

bool events_check(const char *path, char *why, size_t why_bytes)
{
    OWNED_FILE FILE *f = fopen(path, "rb");
    const char *problem = NULL;
    message m;
    bool end = false;
    long record = 0;
    if (!f) {
        snprintf(why, why_bytes, "%s: %s", path, strerror(errno));
        return false;
    }
    while (!end && !problem) {
        problem = problem_of(f, &m, &end);
        record += !problem;
    }
    if (problem)
        snprintf(why, why_bytes, "%s: record %ld %s", path, record, problem);
    return !problem;
}
