/* SPDX-License-Identifier: MIT */
/* The CSV of a timeline, which the figures are drawn from: the rows of one rank; see timeline.h. */
#include "common/profile/timeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/profile/append.h"
#include "common/profile/intervals.h"

enum { ROWS_MAX = 2000, STEPS = 1600, NAMES = 16 }; /* rows of one rank; a figure is some 1600 pixels wide */

/* ---- rows ---- */

static int by_lane_and_stream(const void *a, const void *b)
{
    const timed_span *x = a, *y = b;
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    if (x->stream != y->stream)
        return x->stream < y->stream ? -1 : 1;
    return (x->start_us > y->start_us) - (x->start_us < y->start_us);
}

/* Neighbours of one lane and stream that become one row. */
typedef struct group {
    timed_span row;
    double end_us, busy_us; /* of the last of them; of all */
    struct {
        const char *name;
        double us;
    } names[NAMES];
    int name_count;
} group;

static void group_add(group *g, const timed_span *s)
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
static void group_end(const group *g, span_list *out)
{
    timed_span row = g->row;
    double most = -1;
    if (g->name_count == 0)
        return;
    for (int k = 0; k < g->name_count; k++)
        if (g->names[k].us > most) {
            most = g->names[k].us;
            row.name = g->names[k].name;
        }
    row.end_us = row.start_us + g->busy_us;
    span_list_add(out, row);
}

/* Joins what lies within resolution_us; longer spans stay as they are. Sorted by start. */
static span_list joined(const span_list *spans, double resolution_us)
{
    span_list all = {0}, out = {0};
    group g = {.name_count = 0};
    for (size_t i = 0; i < spans->n; i++)
        span_list_add(&all, spans->v[i]);
    if (all.n)
        qsort(all.v, all.n, sizeof *all.v, by_lane_and_stream);
    for (size_t i = 0; i < all.n; i++) {
        const timed_span *s = &all.v[i];
        const bool fits = g.name_count && g.row.lane == s->lane && g.row.stream == s->stream &&
                          fmax(g.end_us, s->end_us) - g.row.start_us < resolution_us;
        if (!fits) {
            group_end(&g, &out);
            g = (group){.row = *s, .end_us = s->start_us};
        }
        group_add(&g, s);
    }
    group_end(&g, &out);
    free(all.v);
    span_list_sort(&out);
    return out;
}

/* Communication beside which no compute ran; gaps in compute that a figure would not show do not count. */
static span_list exposed_parts(const stream_timeline *t, double resolution_us)
{
    intervals compute = intervals_of(t->spans, t->n, 1u << LANE_COMPUTE, ANY_STREAM, resolution_us);
    intervals communication = intervals_of(t->spans, t->n, 1u << LANE_COMMUNICATION, ANY_STREAM, 0);
    intervals parts = intervals_minus(&communication, &compute);
    span_list all = {0};
    for (size_t i = 0; i < parts.n; i++)
        span_list_add(&all, (timed_span){parts.v[i].start, parts.v[i].end, ANY_STREAM, LANE_COMMUNICATION, "exposed"});
    span_list rows = joined(&all, resolution_us);
    free(all.v);
    free(compute.v);
    free(communication.v);
    free(parts.v);
    return rows;
}

static char *quoted(const char *text)
{
    const size_t bytes = csv_quote(text, NULL, 0) + 1;
    char *out = xmalloc(bytes);
    csv_quote(text, out, bytes);
    return out;
}

static void put_row(FILE *f, const char *label, int rank, const char *lane, const timed_span *s)
{
    char *name = quoted(s->name);
    fprintf(f, "%s,%d,%s,%d,%s,%.3f,%.3f\n", label, rank, lane, s->stream, name, s->start_us, s->end_us);
    free(name);
}

static void put_comment(FILE *f, const char *label, int rank, const stream_timeline *t, double resolution_us)
{
    const timeline_sums s = timeline_sum(t);
    fprintf(f, "# rank %d of ", rank);
    for (const char *c = label; *c; c++)
        fputc(*c == '\n' || *c == '\r' ? ' ' : *c, f);
    fprintf(f, ": %.3f ms; compute %.3f ms; communication %.3f ms, of it exposed %.3f ms; idle %.3f ms",
            s.total_us / 1e3, s.compute_us / 1e3, s.communication_us / 1e3, s.exposed_us / 1e3, s.idle_us / 1e3);
    if (resolution_us > 0)
        fprintf(f, " (of %zu spans those within %.3g us are joined)", t->n, resolution_us);
    fputc('\n', f);
}

bool timeline_write_csv(const char *path, const char *label, int rank, const stream_timeline *t)
{
    const double total_us = timeline_sum(t).total_us;
    const span_list spans = {t->spans, t->n, t->n};
    double resolution_us = 0;
    span_list rows = joined(&spans, resolution_us), exposed = exposed_parts(t, resolution_us);
    while (rows.n + exposed.n > ROWS_MAX && resolution_us < total_us) {
        free(rows.v);
        free(exposed.v);
        resolution_us = resolution_us > 0 ? 1.5 * resolution_us : total_us / STEPS;
        rows = joined(&spans, resolution_us);
        exposed = exposed_parts(t, resolution_us);
    }
    char *text = NULL, *cell = quoted(label);
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    if (!f)
        die(EXIT_CODE_FAILURE, "out of memory");
    put_comment(f, label, rank, t, resolution_us);
    for (size_t i = 0; i < rows.n; i++)
        put_row(f, cell, rank, timeline_lane_name(rows.v[i].lane), &rows.v[i]);
    for (size_t i = 0; i < exposed.n; i++)
        put_row(f, cell, rank, "exposed", &exposed.v[i]);
    fclose(f);
    const bool ok = timeline_append(path, "label,rank,lane,stream,name,start_us,end_us\n", "", text, "");
    free(cell);
    free(text);
    free(rows.v);
    free(exposed.v);
    return ok;
}
