/* SPDX-License-Identifier: MIT */
/* Two pinned pieces take turns; see pieces.h. A device keeps them from the first call to its end: pinning takes as long
 * as copying several of them. */
#include "common/device/pieces.h"

#include "common/core/error.h"
#include "common/device/internal.h"

enum { PIECE = 32 << 20 };

static char *pinned(device *d, size_t i)
{
    if (!d->pieces && !(d->pieces = device_host_malloc(d, 2 * PIECE)))
        die(EXIT_CODE_FAILURE, "no pinned host memory left for %d bytes", 2 * PIECE);
    return (char *)d->pieces + i % 2 * PIECE;
}

static size_t size_of(size_t i, size_t bytes)
{
    return bytes - i * PIECE < PIECE ? bytes - i * PIECE : PIECE;
}

void pieces_read(device *d, const void *from, size_t bytes,
                 void (*take)(void *arg, const void *piece, size_t at, size_t bytes), void *arg)
{
    if (d->kind == DEVICE_CPU) {
        device_sync(d);
        take(arg, from, 0, bytes);
        return;
    }
    device_event *copied[2] = {device_event_create(d), device_event_create(d)};
    const size_t n = (bytes + PIECE - 1) / PIECE;
    for (size_t i = 0; i <= n; i++) {
        if (i < n) {
            device_copy(d, pinned(d, i), (const char *)from + i * PIECE, size_of(i, bytes));
            device_event_record(d, copied[i % 2]);
        }
        if (i > 0) {
            device_event_sync(d, copied[(i - 1) % 2]);
            take(arg, pinned(d, i - 1), (i - 1) * PIECE, size_of(i - 1, bytes));
        }
    }
    device_event_destroy(d, copied[0]);
    device_event_destroy(d, copied[1]);
}

void pieces_write(device *d, void *to, size_t bytes, void (*give)(void *arg, void *piece, size_t at, size_t bytes),
                  void *arg)
{
    if (d->kind == DEVICE_CPU) {
        device_sync(d);
        give(arg, to, 0, bytes);
        return;
    }
    device_event *copied[2] = {device_event_create(d), device_event_create(d)};
    const size_t n = (bytes + PIECE - 1) / PIECE;
    for (size_t i = 0; i < n; i++) {
        if (i > 1)
            device_event_sync(d, copied[i % 2]);
        give(arg, pinned(d, i), i * PIECE, size_of(i, bytes));
        device_copy(d, (char *)to + i * PIECE, pinned(d, i), size_of(i, bytes));
        device_event_record(d, copied[i % 2]);
    }
    device_sync(d);
    device_event_destroy(d, copied[0]);
    device_event_destroy(d, copied[1]);
}
