/* SPDX-License-Identifier: MIT */
/* Edges between the streams of a step: an event is recorded behind what must be over, and waited for by what must not begin
 * before. Since one host thread enqueues a step in order, an event is never recorded again before its waiters are enqueued. */
#include <string.h>

#include "common/core/error.h"
#include "common/parallel/internal.h"

void parallel_record(parallel *p, void *stream, device_event **edge)
{
    if (!*edge)
        *edge = device_event_create(p->m.d);
    device_stream_record(p->m.d, stream, *edge);
}

void parallel_meet(parallel *p, comm *c, void *stream)
{
    comm_barrier(c, stream);
    parallel_record(p, stream, &p->meeting);
    device_event_sync(p->m.d, p->meeting);
}

static wait_times *new_wait(parallel *p, wait_kind kind)
{
    if (p->wait_count == p->wait_room) {
        const int room = p->wait_room ? 2 * p->wait_room : 64;
        p->waits = xrealloc(p->waits, (size_t)room * sizeof *p->waits);
        memset(p->waits + p->wait_room, 0, (size_t)(room - p->wait_room) * sizeof *p->waits);
        p->wait_room = room;
    }
    p->waits[p->wait_count].kind = kind;
    return &p->waits[p->wait_count++];
}

void parallel_main_waits(parallel *p, device_event *e, wait_kind kind)
{
    const bool timed = p->instrumented && (kind != WAIT_TAIL || p->timing);
    wait_times *w = timed ? new_wait(p, kind) : NULL;
    if (w)
        parallel_record(p, p->m.main, &w->from);
    device_stream_wait(p->m.d, p->m.main, e);
    if (w)
        parallel_record(p, p->m.main, &w->to);
}
