/* SPDX-License-Identifier: MIT */
/* Blocks of device memory with tags; see memory.h. Sizes are rounded up to 256 bytes and counted so. Released blocks
 * are kept for an equal request but not counted: they go back to the device as soon as it has no other memory. */
#include "common/device/memory.h"

#include <stdlib.h>

#include "common/core/error.h"

enum { ALIGNMENT = 256 };

typedef struct block {
    void *p;
    size_t bytes;
    bool live; /* else released and kept */
    struct block *next;
} block;

struct memory {
    device *dev;
    block *blocks;
    size_t current, peak;
    size_t failed_bytes;
    const char *failed_tag; /* NULL: nothing failed */
};

memory *memory_create(device *d)
{
    memory *m = xcalloc(1, sizeof *m);
    m->dev = d;
    return m;
}

/* Gives back kept blocks, and live ones too with `live`. */
static void give_back(memory *m, bool live)
{
    for (block **link = &m->blocks; *link;) {
        block *b = *link;
        if (b->live && !live) {
            link = &b->next;
            continue;
        }
        *link = b->next;
        m->current -= b->live ? b->bytes : 0;
        device_free(m->dev, b->p);
        free(b);
    }
}

void memory_destroy(memory *m)
{
    memory_release_all(m);
    free(m);
}

static block *take(memory *m, size_t bytes)
{
    for (block *b = m->blocks; b; b = b->next)
        if (!b->live && b->bytes == bytes)
            return b;
    void *p = device_malloc(m->dev, bytes);
    if (!p) {
        give_back(m, false);
        p = device_malloc(m->dev, bytes);
    }
    if (!p)
        return NULL;
    block *b = xcalloc(1, sizeof *b);
    *b = (block){.p = p, .bytes = bytes, .next = m->blocks};
    return m->blocks = b;
}

void *memory_alloc(memory *m, size_t bytes, const char *tag)
{
    bool countable = bytes <= SIZE_MAX - ALIGNMENT;
    size_t rounded = countable ? ((bytes ? bytes : 1) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : 0;
    block *b = countable ? take(m, rounded) : NULL;
    if (!b) {
        m->failed_bytes = bytes;
        m->failed_tag = tag;
        return NULL;
    }
    b->live = true;
    m->current += rounded;
    m->peak = m->current > m->peak ? m->current : m->peak;
    return b->p;
}

void memory_release(memory *m, void *p)
{
    if (!p)
        return;
    block *b = m->blocks;
    while (b && (b->p != p || !b->live))
        b = b->next;
    if (!b)
        die(EXIT_CODE_FAILURE, "bug: released memory that was not held");
    b->live = false;
    m->current -= b->bytes;
}

void memory_trim(memory *m)
{
    device_sync(m->dev); /* what is queued may still use them */
    give_back(m, false);
}

void memory_release_all(memory *m)
{
    device_sync(m->dev); /* what is queued may still use it */
    give_back(m, true);
}

size_t memory_current(const memory *m)
{
    return m->current;
}
size_t memory_peak(const memory *m)
{
    return m->peak;
}
void memory_peak_reset(memory *m)
{
    m->peak = m->current;
}

bool memory_failed(const memory *m, size_t *asked_bytes, const char **tag)
{
    if (!m->failed_tag)
        return false;
    *asked_bytes = m->failed_bytes;
    *tag = m->failed_tag;
    return true;
}

void memory_failed_clear(memory *m)
{
    m->failed_tag = NULL;
}
