/* SPDX-License-Identifier: MIT */
/* Copies inside a device's memory, between GPUs, and between a GPU and the host; see roofline.h. */
#include "bench/roofline/roofline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"

/* ---- what is copied: bytes that tell their place and their seed ---- */

enum { CHUNK = 1 << 21 }; /* 8-byte words */

static void pattern(uint64_t *out, size_t words, uint64_t first, uint64_t seed)
{
    for (size_t i = 0; i < words; i++) {
        uint64_t x = (first + i + 1) * 0x9e3779b97f4a7c15u + seed; /* odd multiplier: every word differs */
        out[i] = x ^ x >> 29;
    }
}

static void pattern_upload(device *d, void *dst, size_t bytes, uint64_t seed)
{
    OWNED uint64_t *chunk = xmalloc(CHUNK * sizeof *chunk);
    size_t words = bytes / sizeof *chunk;
    for (size_t at = 0; at < words; at += CHUNK) {
        size_t count = words - at < CHUNK ? words - at : CHUNK;
        pattern(chunk, count, at, seed);
        device_upload(d, (uint64_t *)dst + at, chunk, count * sizeof *chunk);
    }
}

/* Is the pattern there? If not, the row fails with the first wrong place. */
static bool pattern_verify(roofline *r, device *d, const void *src, size_t bytes, uint64_t seed)
{
    OWNED uint64_t *want = xmalloc(CHUNK * sizeof *want), *got = xmalloc(CHUNK * sizeof *got);
    size_t words = bytes / sizeof *want;
    bool same = true;
    for (size_t at = 0; same && at < words; at += CHUNK) {
        size_t count = words - at < CHUNK ? words - at : CHUNK;
        pattern(want, count, at, seed);
        device_download(d, got, (const uint64_t *)src + at, count * sizeof *got);
        same = memcmp(want, got, count * sizeof *got) == 0;
        for (size_t i = 0; !same && i < count; i++)
            if (want[i] != got[i]) {
                row_status_set(r->w, ROW_FAIL, "wrong copy at byte %zu: got %016llx want %016llx",
                               (at + i) * sizeof *got, (unsigned long long)got[i], (unsigned long long)want[i]);
                break;
            }
    }
    return same;
}

/* ---- inside one device ---- */

typedef struct copy {
    roofline *r;
    void *dst, *src;
    size_t bytes;
    int calls; /* of a sample */
} copy;

static bool copy_by_device(void *arg)
{
    copy *k = arg;
    device_copy(k->r->s->dev, k->dst, k->src, k->bytes);
    return true;
}

static bool copy_by_kernel(void *arg)
{
    copy *k = arg;
    return roofline_ok(k->r, k->r->kernels->copy(k->r->ctx, k->dst, k->src, k->bytes, device_stream(k->r->s->dev)));
}

static bool copies_by_device(void *arg)
{
    const copy *k = arg;
    for (int i = 0; i < k->calls; i++)
        copy_by_device(arg);
    return true;
}

/* From 1 ms on, the launches of the next sample hide behind it; also on a GPU that copies 8 TB/s. */
int roofline_copy_calls(size_t bytes, bool cold_l2)
{
    const double calls = ceil(1e-3 * 8e12 / (2 * (double)bytes));
    return cold_l2 ? 1 : (int)fmin(100, fmax(2, calls));
}

/* The driver copies 1 GiB in a CUDA graph at two thirds of the rate that the same call has on a stream (an H200: 2716 and 4189
 * GB/s): it takes another way there. So its copies are called as programs call them, several to a sample. */
static measure_how how_by_device(const session *s, size_t bytes)
{
    measure_how how = measure_default(s);
    if (device_kind_of(s->dev) == DEVICE_CUDA && how.timing.kind == TIMER_AUTO) {
        how.timing.kind = TIMER_EVENT;
        how.calls = roofline_copy_calls(bytes, how.timing.cold_l2);
    }
    return how;
}

bool roofline_copy_time(roofline *r, bool by_kernel, size_t bytes, uint64_t seed, double *ms)
{
    session *s = r->s;
    bool (*fn)(void *arg) = by_kernel ? copy_by_kernel : copy_by_device;
    copy k = {.r = r, .bytes = bytes};
    if (!(k.src = memory_alloc(s->mem, k.bytes, "source")) || !(k.dst = memory_alloc(s->mem, k.bytes, "destination")))
        return false;
    pattern_upload(s->dev, k.src, k.bytes, seed);
    device_memset(s->dev, k.dst, 0xff, k.bytes);
    if (option_flag(s->opt, "check") && (!fn(&k) || !pattern_verify(r, s->dev, k.dst, k.bytes, seed)))
        return false;
    const measure_how how = by_kernel ? measure_default(s) : how_by_device(s, bytes);
    k.calls = how.calls;
    return roofline_time(r, &how, by_kernel ? fn : copies_by_device, &k,
                         (roofline_amount){.bytes = 2.0 * (double)k.bytes}, ms);
}

/* ---- between a device and the host ---- */

static bool copy_by_link(void *arg)
{
    copy *k = arg;
    device_copy(k->r->s->dev, k->dst, k->src, k->bytes);
    return true;
}

/* The pattern goes to the device and comes back by the link, so that each direction is verified. */
static bool link_verify(roofline *r, void *host, void *on_device, size_t bytes, uint64_t seed)
{
    device *d = r->s->dev;
    pattern(host, bytes / sizeof(uint64_t), 0, seed);
    device_memset(d, on_device, 0xff, bytes);
    device_copy(d, on_device, host, bytes);
    if (!pattern_verify(r, d, on_device, bytes, seed))
        return false;
    memset(host, 0xff, bytes);
    device_copy(d, host, on_device, bytes);
    device_sync(d);
    OWNED uint64_t *want = xmalloc(bytes);
    pattern(want, bytes / sizeof *want, 0, seed);
    const bool same = memcmp(want, host, bytes) == 0;
    if (!same)
        row_status_set(r->w, ROW_FAIL, "a copy from the device to the host is wrong");
    return same;
}

bool roofline_host_copy_time(roofline *r, bool to_device, size_t bytes, uint64_t seed, double *ms)
{
    session *s = r->s;
    if (device_kind_of(s->dev) == DEVICE_CPU) {
        row_status_set(r->w, ROW_SKIP, "the CPU's memory is the host's");
        return false;
    }
    void *on_device = memory_alloc(s->mem, bytes, "copy"), *host = on_device ? device_host_malloc(s->dev, bytes) : NULL;
    if (on_device && !host)
        row_status_set(r->w, ROW_OOM, "no pinned memory of %zu bytes on the host", bytes);
    copy k = {.r = r, .dst = to_device ? on_device : host, .src = to_device ? host : on_device, .bytes = bytes};
    const measure_how how = measure_default(s);
    const bool ok = host && (!option_flag(s->opt, "check") || link_verify(r, host, on_device, bytes, seed)) &&
                    roofline_time(r, &how, copy_by_link, &k, (roofline_amount){.bytes = (double)bytes}, ms);
    if (host)
        device_host_free(s->dev, host);
    return ok;
}

/* ---- between GPUs ---- */

typedef struct peer_copy {
    device *dev[2];        /* from, to */
    void *src[2], *dst[2]; /* on dev[i]; src[i] goes to dst[1 - i] */
    device_event *begin, *end;
    size_t bytes;
} peer_copy;

static bool peer_one_way(void *arg)
{
    peer_copy *p = arg;
    device_peer_copy(p->dev[1], p->dst[1], p->dev[0], p->src[0], p->bytes);
    return true;
}

/* The way back runs on the other GPU's stream, held between two events of the first one's. */
static bool peer_both_ways(void *arg)
{
    peer_copy *p = arg;
    device_event_record(p->dev[0], p->begin);
    device_event_wait(p->dev[1], p->begin);
    device_peer_copy(p->dev[0], p->dst[0], p->dev[1], p->src[1], p->bytes);
    device_event_record(p->dev[1], p->end);
    device_peer_copy(p->dev[1], p->dst[1], p->dev[0], p->src[0], p->bytes);
    device_event_wait(p->dev[0], p->end);
    return true;
}

static bool peer_measure(roofline *r, peer_copy *p, bool both, uint64_t seed, double *ms)
{
    bool (*fn)(void *arg) = both ? peer_both_ways : peer_one_way;
    for (int i = 0; i < 2; i++) {
        if (i == 0 || both)
            pattern_upload(p->dev[i], p->src[i], p->bytes, seed + (uint64_t)i);
        device_memset(p->dev[i], p->dst[i], 0xff, p->bytes);
        device_sync(p->dev[i]);
    }
    if (option_flag(r->s->opt, "check")) {
        fn(p);
        device_sync(p->dev[0]);
        if (!pattern_verify(r, p->dev[1], p->dst[1], p->bytes, seed) ||
            (both && !pattern_verify(r, p->dev[0], p->dst[0], p->bytes, seed + 1)))
            return false;
    }
    measure_how how = measure_default(r->s);
    how.dev = p->dev[0];
    how.timing.kind = TIMER_EVENT; /* a graph would be of two devices */
    const roofline_amount amount = {.bytes = (both ? 2.0 : 1.0) * (double)p->bytes};
    const bool ok = roofline_time(r, &how, fn, p, amount, ms);
    device_sync(p->dev[1]);
    return ok;
}

/* False with the row's status where there are no such two GPUs. */
static bool peers_open_pair(roofline *r, int from, int to, peer_copy *p)
{
    const int ordinal[2] = {from, to}, gpus = device_get_info(r->s->dev)->count;
    if (device_kind_of(r->s->dev) == DEVICE_CPU) {
        row_status_set(r->w, ROW_SKIP, "p2p needs two GPUs");
        return false;
    }
    for (int i = 0; i < 2; i++)
        if (ordinal[i] >= gpus) {
            row_status_set(r->w, ROW_SKIP, "no GPU %d is visible", ordinal[i]);
            return false;
        }
    for (int i = 0; i < 2; i++) {
        if (!r->peers[ordinal[i]])
            r->peers[ordinal[i]] = device_open(DEVICE_CUDA, ordinal[i]);
        p->dev[i] = r->peers[ordinal[i]];
    }
    return true;
}

bool roofline_p2p_time(roofline *r, int from, int to, bool both_ways, size_t bytes, uint64_t seed, double *ms,
                       bool *direct)
{
    peer_copy p = {.bytes = bytes};
    if (!peers_open_pair(r, from, to, &p))
        return false;
    bool room = true;
    for (int i = 0; i < 2; i++) {
        p.src[i] = device_malloc(p.dev[i], p.bytes);
        p.dst[i] = device_malloc(p.dev[i], p.bytes);
        room = room && p.src[i] && p.dst[i];
    }
    p.begin = device_event_create(p.dev[0]);
    p.end = device_event_create(p.dev[1]);
    *direct = device_peer_enable(p.dev[0], p.dev[1]);
    if (!room)
        row_status_set(r->w, ROW_OOM, "no room for two buffers of %zu bytes on each GPU", p.bytes);
    const bool ok = room && peer_measure(r, &p, both_ways, seed, ms);
    device_event_destroy(p.dev[0], p.begin);
    device_event_destroy(p.dev[1], p.end);
    for (int i = 0; i < 2; i++) {
        device_free(p.dev[i], p.src[i]);
        device_free(p.dev[i], p.dst[i]);
    }
    return ok;
}

void roofline_peers_close(roofline *r)
{
    for (int i = 0; i < ROOFLINE_GPUS; i++)
        if (r->peers[i]) {
            device_close(r->peers[i]);
            r->peers[i] = NULL;
        }
}

bool roofline_pair_parse(const char *text, int *from, int *to)
{
    int a, b, length = 0;
    if (sscanf(text, "%2d-%2d%n", &a, &b, &length) != 2 || text[length] || a == b || a < 0 || b < 0 ||
        a >= ROOFLINE_GPUS || b >= ROOFLINE_GPUS)
        return false;
    if (from)
        *from = a;
    if (to)
        *to = b;
    return true;
}

char *roofline_every_pair(int gpus)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = text_stream(&text, &bytes);
    if (gpus < 2)
        fputs("0-1", out); /* one row that says why there is none */
    for (int from = 0; from < gpus && from < ROOFLINE_GPUS; from++)
        for (int to = 0; to < gpus && to < ROOFLINE_GPUS; to++)
            if (from != to)
                fprintf(out, "%s%d-%d", ftell(out) ? "," : "", from, to);
    fclose(out);
    return text;
}
