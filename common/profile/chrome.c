/* SPDX-License-Identifier: MIT */
/* Rows of chrome's trace event format: complete events ("X") with times in microseconds, and metadata ("M") that names
 * processes and threads. Events of one thread must not overlap there, but kernels of one stream may (a launch that
 * starts before the previous one has ended), and a graph is spread over as many streams as the driver likes. So a
 * thread here is a lane and a stream, or a lane alone if there are many streams, and what overlaps goes to another
 * thread of the same kind. */
#include "common/profile/chrome.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/core/error.h"

enum { STREAMS_MAX = 12 };

typedef chrome_row row;

long long chrome_ns(double us)
{
    return llround(us * 1e3);
}

static bool many_streams(const record_span *s, size_t count)
{
    struct {
        record_lane lane;
        int stream;
    } seen[STREAMS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        while (k < n && (seen[k].lane != s[i].lane || seen[k].stream != s[i].stream))
            k++;
        if (k == STREAMS_MAX)
            return true;
        if (k == n) {
            seen[n].lane = s[i].lane;
            seen[n++].stream = s[i].stream;
        }
    }
    return false;
}

int *chrome_place(const record_span *spans, size_t count, chrome_row **rows, int *row_count)
{
    const bool many = many_streams(spans, count);
    int *at = xcalloc(count ? count : 1, sizeof *at), n = 0;
    *rows = NULL;
    for (size_t i = 0; i < count; i++) {
        const record_span *s = &spans[i];
        const int stream = many ? ANY_STREAM : s->stream;
        int k = 0, alike = 0;
        for (; k < n; k++) {
            const row *r = &(*rows)[k];
            if (r->lane != s->lane || r->stream != stream)
                continue;
            if (r->end_ns <= chrome_ns(s->start_us))
                break;
            alike++;
        }
        if (k == n) {
            *rows = xrealloc(*rows, (size_t)(n + 1) * sizeof **rows);
            (*rows)[n++] = (row){.lane = s->lane, .stream = stream, .number = alike};
        }
        (*rows)[k].end_ns = chrome_ns(s->end_us);
        at[i] = k;
    }
    *row_count = n;
    return at;
}

int chrome_thread(int row_index)
{
    return row_index + 1;
}

void chrome_put_names(FILE *f, const char *label, int rank, const chrome_row *rows, int n)
{
    OWNED char *process = xasprintf("rank %d, %s", rank, label);
    fprintf(f, "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}},\n", rank, rank);
    fprintf(f, "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":", rank);
    text_json(f, process);
    fprintf(f, "}}");
    for (int k = 0; k < n; k++) {
        const row *r = &rows[k];
        fprintf(f, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s", rank,
                chrome_thread(k), record_lane_name(r->lane));
        if (r->stream != ANY_STREAM)
            fprintf(f, ", stream %d", r->stream);
        if (r->number)
            fprintf(f, " (%d)", r->number + 1);
        fprintf(
            f,
            "\"}},\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}}",
            rank, chrome_thread(k), 1000 * (int)r->lane + k);
    }
}
