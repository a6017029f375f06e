/* SPDX-License-Identifier: MIT */
/* A profile as a trace, for ui.perfetto.dev and chrome://tracing, in the form that HolisticTraceAnalysis reads, too
 * (github.com/facebookresearch/HolisticTraceAnalysis): X events for what ran on the device, for ranges and for calls of
 * the host; an arrow (s, f) from a call to the span it launched; C events for what is busy; M events for names. A rank
 * is a process. Events of a thread nest or lie apart, see chrome.c. Everything is cut to the window, as in
 * the tables, but a kernel that starts early is drawn from its start. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/profile/append.h"
#include "common/profile/chrome.h"
#include "common/profile/files.h"

enum { HOST_THREAD = 1000, CALL_THREAD = 2000, THREADS_MAX = 64 }; /* before the number of a host's thread */

typedef struct writer {
    FILE *f;
    int rank;
    const recording *r;
    record_window w;
    double base_us;
    uint32_t threads[THREADS_MAX]; /* that made calls */
    int thread_count;
} writer;

/* The head of an X event, up to its arguments. Start and end are rounded, not the duration, so that nesting stays. */
static void put_x(writer *x, int thread, const char *category, const char *name, double start_us, double end_us)
{
    const long long start = chrome_ns(start_us - x->base_us), end = chrome_ns(end_us - x->base_us);
    fprintf(x->f, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\",\"name\":", x->rank,
            thread, (double)start / 1e3, (double)(end - start) / 1e3, category);
    text_json(x->f, name);
}

/* ---- the device ---- */

static const char *category_of(const record_span *s)
{
    return s->kind == RECORD_COPY ? "gpu_memcpy" : s->kind == RECORD_SET ? "gpu_memset" : "kernel";
}

static void put_span(writer *x, int thread, const record_span *s)
{
    const record_work *op = record_op(x->r, s->range);
    put_x(x, thread, category_of(s), s->kind == RECORD_KERNEL ? s->kernel : s->name, s->start_us, s->end_us);
    fprintf(x->f,
            ",\"args\":{\"stream\":%d,\"correlation\":%u,\"graph node id\":%llu,\"lane\":\"%s\",\"range\":", s->stream,
            s->correlation, (unsigned long long)s->node, record_lane_name(s->lane));
    text_json(x->f, s->range >= 0 ? x->r->ranges[s->range].path : "unattributed");
    fprintf(x->f, ",\"op\":");
    text_json(x->f, op ? op->op : "");
    if (s->kernel != s->name) {
        fprintf(x->f, ",\"short name\":");
        text_json(x->f, s->name);
    }
    if (s->grid[0])
        fprintf(x->f, ",\"grid\":[%d,%d,%d],\"block\":[%d,%d,%d]", s->grid[0], s->grid[1], s->grid[2], s->block[0],
                s->block[1], s->block[2]);
    if (s->bytes > 0)
        fprintf(x->f, ",\"bytes\":%.0f", s->bytes);
    fprintf(x->f, "}}");
}

/* Both ends of the arrow, where the call lies in the window. A launch of a graph points at its first span. */
static int call_thread(writer *x, const record_call *c)
{
    int k = 0;
    while (k < x->thread_count && x->threads[k] != c->thread)
        k++;
    if (k == x->thread_count && k < THREADS_MAX)
        x->threads[x->thread_count++] = c->thread;
    return CALL_THREAD + k;
}

static void put_arrow(writer *x, int thread, const record_span *s, char *used)
{
    const record_call *c = s->call >= 0 ? &x->r->calls[s->call] : NULL;
    if (!c || used[s->call] || c->start_us < x->w.from_us || c->end_us > x->w.to_us || s->start_us < c->start_us)
        return;
    used[s->call] = 1;
    const int from = call_thread(x, c);
    fprintf(x->f, ",\n{\"ph\":\"s\",\"id\":%u,\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"cat\":\"ac2g\",\"name\":\"ac2g\"}",
            s->correlation, x->rank, from, (double)chrome_ns(c->start_us - x->base_us) / 1e3);
    fprintf(x->f,
            ",\n{\"ph\":\"f\",\"id\":%u,\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"cat\":\"ac2g\",\"name\":\"ac2g\","
            "\"bp\":\"e\"}",
            s->correlation, x->rank, thread, (double)chrome_ns(s->start_us - x->base_us) / 1e3);
}

static void put_device(writer *x, const char *label, const record_span *s, size_t n)
{
    chrome_row *rows;
    int row_count;
    OWNED int *at = chrome_place(s, n, &rows, &row_count);
    OWNED char *used = xcalloc(x->r->call_count + 1, 1);
    chrome_put_names(x->f, label, x->rank, rows, row_count);
    for (size_t i = 0; i < n; i++) {
        put_span(x, chrome_thread(at[i]), &s[i]);
        put_arrow(x, chrome_thread(at[i]), &s[i], used);
    }
    free(rows);
}

/* ---- busy lanes ---- */

static void put_counters(writer *x, const record_span *s, size_t n)
{
    size_t count;
    OWNED sweep_edge *e = sweep_edges(s, n, -INFINITY, INFINITY, &count);
    int running[3] = {0}, shown[3] = {-1, -1, -1};
    for (size_t i = 0; i < count; i++) {
        running[e[i].lane] += e[i].step;
        if ((i + 1 < count && e[i + 1].us == e[i].us) || memcmp(running, shown, sizeof shown) == 0)
            continue;
        memcpy(shown, running, sizeof shown);
        fprintf(x->f,
                ",\n{\"ph\":\"C\",\"pid\":%d,\"ts\":%.3f,\"name\":\"running\",\"args\":{\"compute\":%d,"
                "\"communication\":%d,\"copy\":%d}}",
                x->rank, (double)chrome_ns(e[i].us - x->base_us) / 1e3, running[0], running[1], running[2]);
    }
}

/* ---- the host ---- */

static void put_thread_name(writer *x, int thread, const char *what, int number)
{
    fprintf(x->f, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s %d\"}}",
            x->rank, thread, what, number);
    fprintf(x->f, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}}",
            x->rank, thread, thread - CALL_THREAD);
}

static bool in_window(const writer *x, double *start_us, double *end_us)
{
    *end_us = isnan(*end_us) ? x->w.to_us : fmin(*end_us, x->w.to_us);
    *start_us = fmax(*start_us, x->w.from_us);
    return *start_us < *end_us;
}

static void put_ranges(writer *x)
{
    bool named[THREADS_MAX] = {false};
    for (size_t i = 0; i < x->r->range_count; i++) {
        const record_range *range = &x->r->ranges[i];
        double start = range->start_us, end = range->end_us;
        if (!in_window(x, &start, &end))
            continue;
        const int thread = HOST_THREAD + range->thread;
        if (range->thread < THREADS_MAX && !named[range->thread])
            put_thread_name(x, thread, "ranges of host thread", range->thread), named[range->thread] = true;
        put_x(x, thread, range->work.op ? "cpu_op" : "user_annotation", range->name, start, end);
        fprintf(x->f, ",\"args\":{\"step\":%d}}", range->step);
    }
}

static void put_calls(writer *x)
{
    bool named[THREADS_MAX] = {false};
    for (size_t i = 0; i < x->r->call_count; i++) {
        const record_call *c = &x->r->calls[i];
        double start = c->start_us, end = c->end_us;
        if (!in_window(x, &start, &end))
            continue;
        const int thread = call_thread(x, c), number = thread - CALL_THREAD;
        if (number < THREADS_MAX && !named[number])
            put_thread_name(x, thread, "calls of host thread", number + 1), named[number] = true;
        put_x(x, thread, "cuda_runtime", c->name, start, end);
        fprintf(x->f, ",\"args\":{\"correlation\":%u}}", c->correlation);
    }
}

bool profile_write_trace(const char *path, const char *label, int rank, const recording *r, record_window w,
                         double base_us)
{
    writer x = {.rank = rank, .r = r, .w = w, .base_us = base_us};
    OWNED char *text = NULL;
    size_t bytes, n;
    OWNED record_span *s = record_cut(r, w, &n);
    x.f = text_stream(&text, &bytes);
    put_device(&x, label, s, n);
    put_counters(&x, s, n);
    put_ranges(&x);
    put_calls(&x);
    fclose(x.f);
    OWNED char *head = xasprintf("{\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":%lld,\"traceEvents\":[\n",
                                 llround(base_us * 1e3));
    return append_text(path, head, ",\n", text, "\n]}\n");
}
