/* SPDX-License-Identifier: MIT */
/* Memory events as a pickle for PyTorch's memory viewer; see snapshot.h.
 *
 * Pickle protocol 2, by the few opcodes that the viewer's own reader knows: it is written in JavaScript and reads no
 * others. It appends the items of a list with one call whose arguments they are, so long lists go in batches. */
#include "common/arena/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

enum { BATCH = 1000 };
static const int64_t first_address = 0x7f0000000000, segment_alignment = 2 << 20;

/* ---- pickle ---- */

static void put_little_endian(FILE *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        fputc((int)(value >> (8 * i) & 0xff), out);
}

static void put_int(FILE *out, int64_t value)
{
    bool small = value >= INT32_MIN && value <= INT32_MAX;
    fputc(small ? 'J' : 0x8a, out); /* BININT, LONG1 */
    if (!small)
        fputc(8, out);
    put_little_endian(out, (uint64_t)value, small ? 4 : 8);
}

static void put_text(FILE *out, const char *text)
{
    size_t bytes = strlen(text);
    fputc('X', out); /* BINUNICODE */
    put_little_endian(out, bytes, 4);
    fwrite(text, 1, bytes, out);
}

static void dict_begin(FILE *out)
{
    fputs("}(", out); /* EMPTY_DICT MARK; keys and values follow */
}

static void dict_end(FILE *out)
{
    fputc('u', out); /* SETITEMS */
}

static void list_begin(FILE *out)
{
    fputs("](", out); /* EMPTY_LIST MARK; items follow */
}

/* Before item i of a list. */
static void list_item(FILE *out, size_t i)
{
    if (i && i % BATCH == 0)
        fputs("e(", out); /* APPENDS MARK */
}

static void list_end(FILE *out)
{
    fputc('e', out);
}

static void put_pair_int(FILE *out, const char *key, int64_t value)
{
    put_text(out, key);
    put_int(out, value);
}

static void put_pair_text(FILE *out, const char *key, const char *value)
{
    put_text(out, key);
    put_text(out, value);
}

/* ---- the snapshot ---- */

typedef struct placed { /* an allocation; its release has the same address */
    const arena_event *taken;
    int64_t address;
    bool live; /* still held at the end */
} placed;

typedef struct layout {
    const arena_event *events;
    size_t count;
    int64_t arena_bytes;
    placed *of_event; /* [count]; of a release: its allocation, not live */
    bool categories;
} layout;

static int64_t round_up(int64_t bytes)
{
    return (bytes + segment_alignment - 1) / segment_alignment * segment_alignment;
}

static layout lay_out(const arena_event *events, size_t count, int64_t arena_bytes)
{
    layout l = {events, count, arena_bytes, xcalloc(count ? count : 1, sizeof *l.of_event), false};
    int64_t outside = first_address + round_up(arena_bytes);
    for (size_t i = 0; i < count; i++) {
        const arena_event *e = &events[i];
        l.categories = l.categories || e->kind == MEMORY_OTHER;
        if (e->bytes > 0) {
            l.of_event[i] = (placed){e, e->offset < 0 ? outside : first_address + e->offset, true};
            outside += e->offset < 0 ? round_up(e->bytes) : 0;
            continue;
        }
        size_t taken = i;
        while (taken > 0 && !(events[taken - 1].id == e->id && events[taken - 1].bytes > 0))
            taken--;
        if (e->bytes == 0 || taken == 0)
            continue;
        l.of_event[i] = l.of_event[taken - 1];
        l.of_event[i].live = l.of_event[taken - 1].live = false;
    }
    return l;
}

static void put_no_frames(FILE *out)
{
    put_text(out, "frames");
    list_begin(out);
    list_end(out);
}

static void put_frames(FILE *out, const arena_event *e)
{
    char name[128];
    if (e->layer < 0)
        snprintf(name, sizeof name, "%s (%s)", e->name, memory_kind_name(e->kind));
    else
        snprintf(name, sizeof name, "%s of block %d (%s)", e->name, e->layer, memory_kind_name(e->kind));
    put_text(out, "frames");
    list_begin(out);
    dict_begin(out);
    put_pair_text(out, "filename", step_phase_name(e->phase));
    put_pair_int(out, "line", e->op);
    put_pair_text(out, "name", name);
    dict_end(out);
    list_end(out);
}

/* The viewer's page stops at a file with categories of which none is "unknown": that is the one of MEMORY_OTHER. */
static const char *category(memory_kind kind)
{
    return kind == MEMORY_OTHER ? "unknown" : memory_kind_name(kind);
}

static void put_trace_entry(FILE *out, const layout *l, const placed *p, const char *action, size_t time)
{
    dict_begin(out);
    put_pair_text(out, "action", action);
    put_pair_int(out, "addr", p->address);
    put_pair_int(out, "size", p->taken->bytes);
    put_pair_int(out, "stream", 0);
    put_pair_int(out, "time_us", (int64_t)time);
    if (l->categories)
        put_pair_text(out, "category", category(p->taken->kind));
    put_frames(out, p->taken);
    dict_end(out);
}

static void put_trace(FILE *out, const layout *l)
{
    size_t entries = 0;
    list_begin(out);
    for (size_t i = 0; i < l->count; i++) {
        const placed *p = &l->of_event[i];
        if (!p->taken)
            continue;
        list_item(out, entries++);
        if (l->events[i].bytes > 0) {
            put_trace_entry(out, l, p, "alloc", i);
            continue;
        }
        /* Two entries, as PyTorch has them: the viewer takes a completion alone for one that is still waited for. */
        put_trace_entry(out, l, p, "free_requested", i);
        list_item(out, entries++);
        put_trace_entry(out, l, p, "free_completed", i);
    }
    list_end(out);
}

static void put_block(FILE *out, int64_t address, int64_t bytes, const arena_event *taken)
{
    dict_begin(out);
    put_pair_int(out, "address", address);
    put_pair_int(out, "size", bytes);
    put_pair_int(out, "requested_size", taken ? bytes : 0);
    put_pair_text(out, "state", taken ? "active_allocated" : "inactive");
    if (taken)
        put_frames(out, taken);
    else
        put_no_frames(out);
    dict_end(out);
}

/* One segment and the blocks in it, which fill it without gaps; `live` in the order of addresses. */
static void put_segment(FILE *out, int64_t address, int64_t bytes, const placed *const *live, size_t n)
{
    int64_t held = 0, at = address;
    for (size_t i = 0; i < n; i++)
        held += live[i]->taken->bytes;
    dict_begin(out);
    put_pair_int(out, "device", 0);
    put_pair_int(out, "address", address);
    put_pair_int(out, "total_size", bytes);
    put_pair_int(out, "allocated_size", held);
    put_pair_int(out, "active_size", held);
    put_pair_int(out, "requested_size", held);
    put_pair_int(out, "stream", 0);
    put_pair_text(out, "segment_type", "large");
    put_text(out, "segment_pool_id");
    put_int(out, 0);
    put_int(out, 0);
    fputc(0x86, out); /* TUPLE2 */
    put_text(out, "is_expandable");
    fputc(0x89, out); /* NEWFALSE */
    put_no_frames(out);
    put_text(out, "blocks");
    list_begin(out);
    size_t blocks = 0;
    for (size_t i = 0; i < n; i++) {
        if (live[i]->address > at) {
            list_item(out, blocks++);
            put_block(out, at, live[i]->address - at, NULL);
        }
        list_item(out, blocks++);
        put_block(out, live[i]->address, live[i]->taken->bytes, live[i]->taken);
        at = live[i]->address + live[i]->taken->bytes;
    }
    if (at < address + bytes) {
        list_item(out, blocks);
        put_block(out, at, address + bytes - at, NULL);
    }
    list_end(out);
    dict_end(out);
}

static int by_address(const void *a, const void *b)
{
    int64_t x = (*(const placed *const *)a)->address, y = (*(const placed *const *)b)->address;
    return (x > y) - (x < y);
}

/* The blocks of the arena that are held at the end, in the order of addresses. */
static size_t live_in_arena(const layout *l, const placed **live)
{
    size_t n = 0;
    for (size_t i = 0; i < l->count; i++)
        if (l->of_event[i].live && l->events[i].offset >= 0)
            live[n++] = &l->of_event[i];
    qsort(live, n, sizeof *live, by_address);
    return n;
}

static void put_segments(FILE *out, const layout *l)
{
    OWNED const placed **live = xmalloc((l->count ? l->count : 1) * sizeof *live);
    size_t n = live_in_arena(l, live), segments = 0;
    list_begin(out);
    if (l->arena_bytes > 0) {
        segments++;
        put_segment(out, first_address, l->arena_bytes, live, n);
    }
    for (size_t i = 0; i < l->count; i++) {
        const placed *p = &l->of_event[i];
        if (!p->taken || l->events[i].bytes < 0 || l->events[i].offset >= 0)
            continue;
        list_item(out, segments++);
        put_segment(out, p->address, round_up(p->taken->bytes), &p, p->live);
    }
    list_end(out);
}

bool snapshot_write(const char *path, const arena_event *events, size_t count, int64_t arena_bytes)
{
    FILE *out = fopen(path, "wb");
    if (!out)
        return false;
    layout l = lay_out(events, count, arena_bytes);
    fputs("\x80\x02", out); /* PROTO 2 */
    dict_begin(out);
    put_text(out, "segments");
    put_segments(out, &l);
    put_text(out, "device_traces");
    list_begin(out);
    put_trace(out, &l);
    list_end(out);
    dict_end(out);
    fputc('.', out); /* STOP */
    free(l.of_event);
    return file_close(out);
}
