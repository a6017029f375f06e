/* SPDX-License-Identifier: MIT */
/* The lanes of a recording as rows of a CSV, which the figures are drawn from; see lanes.h. */
#include "common/profile/lanes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/profile/append.h"

enum { ROWS_MAX = 2000, STEPS = 1600, NAMES = 16 }; /* rows of one rank; a figure is some 1600 pixels wide */
enum { NO_STREAM = -1 };

typedef struct bar { /* a span, a row, or an interval */
    double start_us, end_us;
    int lane, stream;
    const char *name;
} bar;
typedef struct bars {
    bar *v;
    size_t n;
} bars;

static bars bars_for(size_t most)
{
    return (bars){xmalloc((most + 1) * sizeof(bar)), 0};
}

static int by_start(const void *a, const void *b)
{
    const bar *x = a, *y = b;
    if (x->start_us != y->start_us)
        return x->start_us < y->start_us ? -1 : 1;
    return (x->end_us < y->end_us) - (x->end_us > y->end_us);
}

static int by_lane_and_stream(const void *a, const void *b)
{
    const bar *x = a, *y = b;
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    if (x->stream != y->stream)
        return x->stream < y->stream ? -1 : 1;
    return by_start(a, b);
}

/* ---- joined rows ---- */

/* Neighbours of one lane and stream that become one row. */
typedef struct group {
    bar row;
    double end_us, busy_us; /* of the last of them; of all */
    struct {
        const char *name;
        double us;
    } names[NAMES];
    int name_count;
} group;

static void group_add(group *g, const bar *s)
{
    int k = 0;
    while (k < g->name_count && strcmp(g->names[k].name, s->name) != 0)
        k++;
    if (k < NAMES) {
        g->name_count = k == g->name_count ? k + 1 : g->name_count;
        g->names[k].name = s->name;
        g->names[k].us += s->end_us - s->start_us;
    }
    g->busy_us += fmax(0, s->end_us - fmax(s->start_us, g->end_us));
    g->end_us = fmax(g->end_us, s->end_us);
}

/* The row starts where the first of the group does and is as long as they are together: a lane that is half empty looks
 * so. It has the name that took the most time. */
static void group_end(const group *g, bars *out)
{
    bar row = g->row;
    double most = -1;
    if (g->name_count == 0)
        return;
    for (int k = 0; k < g->name_count; k++)
        if (g->names[k].us > most) {
            most = g->names[k].us;
            row.name = g->names[k].name;
        }
    row.end_us = row.start_us + g->busy_us;
    out->v[out->n++] = row;
}

/* Joins what lies within resolution_us; longer spans stay as they are. Takes them by lane and stream; gives rows by start. */
static bars joined(const bars *sorted, double resolution_us)
{
    bars out = bars_for(sorted->n);
    group g = {.name_count = 0};
    for (size_t i = 0; i < sorted->n; i++) {
        const bar *s = &sorted->v[i];
        const bool fits = g.name_count && g.row.lane == s->lane && g.row.stream == s->stream &&
                          fmax(g.end_us, s->end_us) - g.row.start_us < resolution_us;
        if (!fits) {
            group_end(&g, &out);
            g = (group){.row = *s, .end_us = s->start_us};
        }
        group_add(&g, s);
    }
    group_end(&g, &out);
    qsort(out.v, out.n, sizeof *out.v, by_start);
    return out;
}

/* ---- what is exposed ---- */

/* The union of a lane's spans, by start; gaps of at most close_us are closed. */
static bars union_of(const bars *spans, record_lane lane, double close_us)
{
    bars all = bars_for(spans->n);
    size_t n = 0;
    for (size_t i = 0; i < spans->n; i++)
        if (spans->v[i].lane == (int)lane)
            all.v[n++] = spans->v[i];
    qsort(all.v, n, sizeof *all.v, by_start);
    for (size_t i = 0; i < n; i++) {
        bar *last = all.n ? &all.v[all.n - 1] : NULL;
        if (!last || all.v[i].start_us > last->end_us + close_us)
            all.v[all.n++] = all.v[i];
        else
            last->end_us = fmax(last->end_us, all.v[i].end_us);
    }
    return all;
}

/* Communication beside which no compute ran; gaps in compute that a figure would not show do not count. */
static bars exposed_parts(const bars *spans, double resolution_us)
{
    bars compute = union_of(spans, LANE_COMPUTE, resolution_us);
    bars communication = union_of(spans, LANE_COMMUNICATION, 0);
    bars parts = bars_for(compute.n + communication.n); /* each of compute splits at most one piece in two */
    size_t k = 0;
    for (size_t i = 0; i < communication.n; i++) {
        bar rest = {communication.v[i].start_us, communication.v[i].end_us, LANE_COMMUNICATION, NO_STREAM, "exposed"};
        while (k < compute.n && compute.v[k].end_us <= rest.start_us)
            k++;
        for (size_t j = k; j < compute.n && compute.v[j].start_us < rest.end_us; j++) {
            if (compute.v[j].start_us > rest.start_us) {
                parts.v[parts.n] = rest;
                parts.v[parts.n++].end_us = compute.v[j].start_us;
            }
            rest.start_us = compute.v[j].end_us;
        }
        if (rest.start_us < rest.end_us)
            parts.v[parts.n++] = rest;
    }
    bars rows = joined(&parts, resolution_us);
    free(compute.v);
    free(communication.v);
    free(parts.v);
    return rows;
}

/* ---- the file ---- */

static void put_row(FILE *f, const char *label, int rank, const char *lane, const bar *s, double base_us)
{
    OWNED char *name = csv_quoted(s->name);
    fprintf(f, "%s,%d,%s,%d,%s,%.3f,%.3f\n", label, rank, lane, s->stream, name, s->start_us - base_us,
            s->end_us - base_us);
}

static void put_comment(FILE *f, const char *label, int rank, const sweep_sums *s, size_t n, double resolution_us)
{
    fprintf(f, "# rank %d of ", rank);
    for (const char *c = label; *c; c++)
        fputc(*c == '\n' || *c == '\r' ? ' ' : *c, f);
    fprintf(f, ": %.3f ms; compute %.3f ms; communication %.3f ms, of it exposed %.3f ms; idle %.3f ms",
            sweep_window_us(s) / 1e3, sweep_lane_us(s, LANE_COMPUTE) / 1e3, sweep_lane_us(s, LANE_COMMUNICATION) / 1e3,
            sweep_exposed_us(s) / 1e3, s->us[0] / 1e3);
    if (resolution_us > 0)
        fprintf(f, " (of %zu spans those within %.3g us are joined)", n, resolution_us);
    fputc('\n', f);
}

bool lanes_write(const char *path, const char *label, int rank, const recording *r, record_window w, double base_us)
{
    size_t n;
    OWNED record_span *cut = record_cut(r, w, &n);
    const sweep_sums sums = sweep(cut, n, w.from_us, w.to_us);
    bars spans = bars_for(n);
    for (size_t i = 0; i < n; i++)
        spans.v[spans.n++] = (bar){cut[i].start_us, cut[i].end_us, (int)cut[i].lane, cut[i].stream, cut[i].name};
    qsort(spans.v, spans.n, sizeof *spans.v, by_lane_and_stream);
    const double total_us = w.to_us - w.from_us;
    double resolution_us = 0;
    bars rows = joined(&spans, resolution_us), exposed = exposed_parts(&spans, resolution_us);
    while (rows.n + exposed.n > ROWS_MAX && resolution_us < total_us) {
        free(rows.v);
        free(exposed.v);
        resolution_us = resolution_us > 0 ? 1.5 * resolution_us : total_us / STEPS;
        rows = joined(&spans, resolution_us);
        exposed = exposed_parts(&spans, resolution_us);
    }
    OWNED char *text = NULL, *cell = csv_quoted(label);
    size_t bytes;
    FILE *f = text_stream(&text, &bytes);
    put_comment(f, label, rank, &sums, n, resolution_us);
    for (size_t i = 0; i < rows.n; i++)
        put_row(f, cell, rank, record_lane_name((record_lane)rows.v[i].lane), &rows.v[i], base_us);
    for (size_t i = 0; i < exposed.n; i++)
        put_row(f, cell, rank, "exposed", &exposed.v[i], base_us);
    fclose(f);
    const bool ok = append_text(path, "label,rank,lane,stream,name,start_us,end_us\n", "", text, "");
    free(spans.v);
    free(rows.v);
    free(exposed.v);
    return ok;
}
