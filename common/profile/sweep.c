/* SPDX-License-Identifier: MIT */
/* Sweeps over spans; see sweep.h. At equal times ends come before starts, so that what touches does not overlap. */
#include "common/profile/sweep.h"

#include <math.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/core/stats.h"

static int by_time(const void *a, const void *b)
{
    const sweep_edge *x = a, *y = b;
    if (x->us != y->us)
        return x->us < y->us ? -1 : 1;
    return x->step - y->step;
}

sweep_edge *sweep_edges(const record_span *s, size_t n, double from_us, double to_us, size_t *count)
{
    sweep_edge *e = xmalloc((2 * n + 1) * sizeof *e);
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        const double start = fmax(s[i].start_us, from_us), end = fmin(s[i].end_us, to_us);
        if (start >= end)
            continue;
        e[m++] = (sweep_edge){start, (int)s[i].lane, 1};
        e[m++] = (sweep_edge){end, (int)s[i].lane, -1};
    }
    qsort(e, m, sizeof *e, by_time);
    *count = m;
    return e;
}

sweep_sums sweep(const record_span *s, size_t n, double from_us, double to_us)
{
    sweep_sums sums = {{0}};
    size_t count;
    int running[3] = {0};
    unsigned set = 0;
    double at = from_us;
    OWNED sweep_edge *e = sweep_edges(s, n, from_us, to_us, &count);
    for (size_t i = 0; i < count; i++) {
        sums.us[set] += e[i].us - at;
        at = e[i].us;
        running[e[i].lane] += e[i].step;
        set = (set & ~(1u << e[i].lane)) | (unsigned)(running[e[i].lane] > 0) << e[i].lane;
    }
    sums.us[0] += to_us > at ? to_us - at : 0;
    return sums;
}

double sweep_window_us(const sweep_sums *s)
{
    double sum = 0;
    for (int i = 0; i < SWEEP_SETS; i++)
        sum += s->us[i];
    return sum;
}

double sweep_lane_us(const sweep_sums *s, record_lane lane)
{
    double sum = 0;
    for (int i = 0; i < SWEEP_SETS; i++)
        sum += i >> lane & 1 ? s->us[i] : 0;
    return sum;
}

double sweep_exposed_us(const sweep_sums *s)
{
    return s->us[1 << LANE_COMMUNICATION] + s->us[1 << LANE_COMMUNICATION | 1 << LANE_COPY];
}

double sweep_copy_alone_us(const sweep_sums *s)
{
    return s->us[1 << LANE_COPY];
}

/* ---- beside ---- */

/* Time until `us` in which two or more ran, from the times at which it is known. */
static double shared_until(const double *times, const double *shared, const bool *grows, size_t n, double us)
{
    size_t low = 0, high = n;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if (times[middle] <= us)
            low = middle;
        else
            high = middle;
    }
    return shared[low] + (grows[low] ? us - times[low] : 0);
}

void sweep_beside(const record_span *s, size_t n, double *beside_us)
{
    size_t count;
    OWNED sweep_edge *e = sweep_edges(s, n, -INFINITY, INFINITY, &count);
    OWNED double *times = xmalloc((count + 1) * sizeof *times), *shared = xmalloc((count + 1) * sizeof *shared);
    OWNED bool *grows = xmalloc(count + 1);
    int running = 0;
    for (size_t i = 0; i < count; i++) {
        const double before = i ? shared[i - 1] + (grows[i - 1] ? e[i].us - times[i - 1] : 0) : 0;
        running += e[i].step;
        times[i] = e[i].us, shared[i] = before, grows[i] = running > 1;
    }
    for (size_t i = 0; i < n; i++)
        beside_us[i] = count && s[i].start_us < s[i].end_us
                           ? shared_until(times, shared, grows, count, s[i].end_us) -
                                 shared_until(times, shared, grows, count, s[i].start_us)
                           : 0;
}

/* ---- windows ---- */

static double step_begin(const recording *r, int step)
{
    double first = INFINITY;
    if (r->host_spans) {
        for (size_t i = 0; i < r->range_count; i++)
            if (r->ranges[i].step == step && r->ranges[i].parent < 0)
                first = r->ranges[i].start_us; /* the last of this number: earlier recordings had one, too */
    } else {
        for (size_t i = 0; i < r->span_count; i++)
            if (r->spans[i].step == step)
                first = fmin(first, r->spans[i].start_us);
    }
    return first;
}

int record_windows(const recording *r, record_window *out, int most)
{
    int n = 0;
    for (double begin = step_begin(r, 0); n < most; n++) {
        const double next = step_begin(r, n + 1);
        if (!isfinite(begin) || !isfinite(next) || next <= begin)
            break;
        out[n] = (record_window){begin, next};
        begin = next;
    }
    return n;
}

bool record_rest(const recording *r, double from_us, record_window *out)
{
    *out = (record_window){INFINITY, -INFINITY};
    for (size_t i = 0; i < r->span_count; i++)
        if (r->spans[i].end_us > from_us) {
            out->from_us = fmin(out->from_us, fmax(from_us, r->spans[i].start_us));
            out->to_us = fmax(out->to_us, r->spans[i].end_us);
        }
    return out->from_us < out->to_us;
}

record_span *record_cut(const recording *r, record_window w, size_t *n)
{
    record_span *kept = xmalloc((r->span_count + 1) * sizeof *kept);
    *n = 0;
    for (size_t i = 0; i < r->span_count; i++) {
        record_span s = r->spans[i];
        s.start_us = fmax(s.start_us, w.from_us);
        s.end_us = fmin(s.end_us, w.to_us);
        if (s.start_us < s.end_us)
            kept[(*n)++] = s;
    }
    return kept;
}

/* ---- early starts ---- */

typedef struct last_span { /* of a stream and lane */
    int stream, lane;
    double end_us;
} last_span;

static last_span *last_of(last_span *last, int *n, const record_span *s)
{
    for (int i = 0; i < *n; i++)
        if (last[i].stream == s->stream && last[i].lane == (int)s->lane)
            return &last[i];
    last[*n] = (last_span){s->stream, (int)s->lane, -INFINITY};
    return &last[(*n)++];
}

void sweep_charge(record_span *s, size_t n)
{
    OWNED last_span *last = xmalloc((n + 1) * sizeof *last);
    int streams = 0;
    for (size_t i = 0; i < n; i++) {
        last_span *before = last_of(last, &streams, &s[i]);
        if (s[i].kind == RECORD_KERNEL && s[i].start_us < before->end_us && before->end_us < s[i].end_us)
            s[i].start_us = before->end_us;
        before->end_us = fmax(before->end_us, s[i].end_us);
    }
    qsort(s, n, sizeof *s, ascending);
}
