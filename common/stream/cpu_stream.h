/* SPDX-License-Identifier: MIT */
/* Streams and events of the CPU with the meaning they have on a GPU: a stream runs what is enqueued on it, in order, on
 * a thread of its own; an event joins streams. So the code that overlaps communication with backward overlaps on the
 * CPU too, and a missing event is a data race that a tool can see.
 *
 * A NULL stream is the calling thread: its work runs at once, a record is done at once, a wait blocks the caller. */
#ifndef STEPBENCH_STREAM_CPU_STREAM_H
#define STEPBENCH_STREAM_CPU_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cpu_stream cpu_stream;
typedef struct cpu_event cpu_event;

cpu_stream *cpu_stream_create(const char *name); /* the thread's name, at most 15 bytes */
void cpu_stream_destroy(cpu_stream *s);          /* after all that is enqueued has run */
/* Enqueues fn on a copy of the `bytes` at arg. */
void cpu_stream_run(cpu_stream *s, void (*fn)(void *arg), const void *arg, size_t bytes);
void cpu_stream_sync(cpu_stream *s); /* waits until all that is enqueued has run */

cpu_event *cpu_event_create(void);
void cpu_event_destroy(cpu_event *e); /* streams may still be waiting for its records */
void cpu_stream_record(cpu_stream *s, cpu_event *e);
/* What s runs from here on waits for the latest record of e, as of this call; one never recorded is no wait. */
void cpu_stream_wait(cpu_stream *s, cpu_event *e);
void cpu_event_sync(cpu_event *e); /* the caller waits for the latest record */
bool cpu_event_done(cpu_event *e); /* the latest record was passed, or there is none */
/* Milliseconds between the latest records of two events; waits for both. NAN when one has none. */
double cpu_event_ms(cpu_event *from, cpu_event *to);

#ifdef __cplusplus
}
#endif
#endif
