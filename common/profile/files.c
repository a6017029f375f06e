/* SPDX-License-Identifier: MIT */
/* Rows of the tables of a profile; see files.h. */
#include "common/profile/files.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/core/csv.h"
#include "common/core/error.h"
#include "common/formulas/collective.h"
#include "common/profile/append.h"

typedef struct sheet { /* rows of one table, before they are written; the first row's cells name the columns */
    const profile_identity *id;
    FILE *f, *header;
    char *text, *columns;
    size_t bytes, columns_bytes, rows, cells;
} sheet;

static sheet *open_sheet(const profile_identity *id)
{
    sheet *s = xcalloc(1, sizeof *s);
    s->id = id;
    s->f = text_stream(&s->text, &s->bytes);
    s->header = text_stream(&s->columns, &s->columns_bytes);
    return s;
}

/* Where the next cell goes. */
static FILE *cell(sheet *s, const char *column)
{
    const char *comma = s->cells++ ? "," : "";
    if (s->rows == 1)
        fprintf(s->header, "%s%s", comma, column);
    fputs(comma, s->f);
    return s->f;
}

static void put(sheet *s, const char *column, const char *text)
{
    OWNED char *quoted = csv_quoted(text);
    fprintf(cell(s, column), "%s", quoted);
}

static void put_count(sheet *s, const char *column, long n)
{
    fprintf(cell(s, column), "%ld", n);
}

static void put_real(sheet *s, const char *column, double x)
{
    if (isnan(x))
        put(s, column, "nan");
    else
        fprintf(cell(s, column), "%.9g", x);
}

static void begin_row(sheet *s)
{
    const profile_identity *i = s->id;
    if (s->rows++)
        fputc('\n', s->f);
    s->cells = 0;
    put(s, "bench", i->bench);
    put(s, "variant", i->variant);
    put(s, "case", i->key);
    put(s, "measurement", i->measurement);
    put_count(s, "rank", i->rank);
    put_count(s, "ranks", i->ranks);
    put(s, "run_id", i->run_id);
    put(s, "campaign", i->campaign);
    put(s, "machine", i->machine);
    put(s, "gpu", i->gpu);
    put(s, "device", i->device);
    put(s, "commit", i->commit);
}

/* A file with other columns, of another version, is moved aside. */
static void move_aside(const char *path, const char *header)
{
    char line[1024] = "";
    FILE *f = fopen(path, "r");
    if (!f)
        return;
    const bool same = fgets(line, sizeof line, f) && strcmp(line, header) == 0;
    fclose(f);
    if (same || !*line)
        return;
    for (int n = 1;; n++) {
        OWNED char *aside = xasprintf("%.*s.%d.csv", (int)(strlen(path) - strlen(".csv")), path, n);
        const bool moved = access(aside, F_OK) != 0 && rename(path, aside) == 0;
        if (moved || errno != ENOENT || n == 1000)
            return;
    }
}

/* Frees it. */
static bool write_sheet(sheet *s, const char *folder, const char *table)
{
    OWNED char *path = xasprintf("%s/%s.csv", folder, table);
    fputc('\n', s->f);
    fputc('\n', s->header);
    fclose(s->f);
    fclose(s->header);
    if (s->rows)
        move_aside(path, s->columns);
    const bool ok = !s->rows || append_text(path, s->columns, "", s->text, "");
    const int error = errno;
    free(s->columns);
    free(s->text);
    free(s);
    errno = error;
    return ok;
}

/* ---- tables ---- */

static void put_dim(sheet *s, const char *column, const int dim[3])
{
    if (dim[0])
        fprintf(cell(s, column), "%dx%dx%d", dim[0], dim[1], dim[2]);
    else
        put(s, column, "");
}

bool profile_write_kernels(const char *folder, const profile_identity *id, const profile_tables *t)
{
    sheet *s = open_sheet(id);
    for (size_t i = 0; i < t->kernel_count; i++) {
        const kernel_row *k = &t->kernels[i];
        begin_row(s);
        put(s, "range", k->range);
        put(s, "kernel", k->kernel);
        put(s, "name", k->name);
        put(s, "op", k->op);
        put(s, "lane", record_lane_name(k->lane));
        put_dim(s, "grid", k->grid);
        put_dim(s, "block", k->block);
        put_count(s, "calls", (long)k->calls);
        put_real(s, "total_ms", k->total_us / 1e3);
        put_real(s, "mean_us", k->total_us / (double)k->calls);
        put_real(s, "share_pct", 100 * k->total_us / t->kernel_us);
        put_real(s, "tflop", k->flops / 1e12);
        put_real(s, "gb", k->bytes / 1e9);
        put(s, "dtype", k->dtype ? k->dtype : "");
        put(s, "bound", kernel_bound(k));
        put_real(s, "attained_pct", kernel_attained_pct(k));
        put_real(s, "lost_ms", kernel_lost_us(k) / 1e3);
        put_real(s, "beside_pct", 100 * k->beside_us / k->total_us);
    }
    return write_sheet(s, folder, "kernels");
}

bool profile_write_products(const char *folder, const profile_identity *id, const profile_tables *t)
{
    sheet *s = open_sheet(id);
    for (int i = 0; i < t->product_count; i++) {
        const products_row *p = &t->products[i];
        const double all = p->gemm_us + p->attention_us + p->other_us;
        begin_row(s);
        put(s, "mode", p->mode);
        put_real(s, "gemm_ms", p->gemm_us / 1e3);
        put_real(s, "attention_ms", p->attention_us / 1e3);
        put_real(s, "other_ms", p->other_us / 1e3);
        put_real(s, "gemm_pct", 100 * p->gemm_us / all);
        put_real(s, "attention_pct", 100 * p->attention_us / all);
        put_real(s, "other_pct", 100 * p->other_us / all);
        put_real(s, "span_ms", p->span_us / 1e3);
        put_real(s, "idle_pct", 100 * p->idle_us / p->span_us);
    }
    return write_sheet(s, folder, "products");
}

static void put_parts(sheet *s, const char *unit, const double values[PARTS_OF_ATTENTION], double scale)
{
    static const char *const names[PARTS_OF_ATTENTION] = {"scores", "mask", "softmax", "value", "whole"};
    for (int part = 0; part < PARTS_OF_ATTENTION; part++) {
        char column[32];
        snprintf(column, sizeof column, "%s_%s", names[part], unit);
        put_real(s, column, values[part] / scale);
    }
}

bool profile_write_softmax(const char *folder, const profile_identity *id, const profile_tables *t)
{
    sheet *s = open_sheet(id);
    for (int i = 0; i < t->softmax_count; i++) {
        const softmax_row *x = &t->softmax[i];
        const double products_us = x->us[PART_SCORES] + x->us[PART_VALUE];
        begin_row(s);
        put(s, "pass", x->pass);
        put(s, "form", x->us[PART_WHOLE] > 0 ? "one kernel" : "parts");
        put_parts(s, "ms", x->us, 1e3);
        put_parts(s, "tflop", x->flops, 1e12);
        put_parts(s, "gb", x->bytes, 1e9);
        put_real(s, "time_ratio", products_us > 0 ? x->us[PART_SOFTMAX] / products_us : NAN);
        put_real(s, "flop_ratio",
                 products_us > 0 ? x->flops[PART_SOFTMAX] / (x->flops[PART_SCORES] + x->flops[PART_VALUE]) : NAN);
        put_real(s, "byte_ratio",
                 products_us > 0 ? x->bytes[PART_SOFTMAX] / (x->bytes[PART_SCORES] + x->bytes[PART_VALUE]) : NAN);
    }
    return write_sheet(s, folder, "softmax");
}

bool profile_write_totals(const char *folder, const profile_identity *id, const profile_totals *t)
{
    sheet *s = open_sheet(id);
    begin_row(s);
    put_real(s, "window_ms", t->window_us / 1e3);
    put_real(s, "busy_ms", t->busy_us / 1e3);
    put_real(s, "kernel_ms", t->kernel_us / 1e3);
    put_real(s, "timed_ms", t->timed_ms);
    put_real(s, "event_ms", t->event_ms);
    put_real(s, "recorded_event_ms", t->recorded_event_ms);
    put_real(s, "host_ms", t->host_ms);
    put_real(s, "profiler_overhead_pct", 100 * (t->recorded_event_ms / t->event_ms - 1));
    put_real(s, "attributed_pct", t->attributed_pct);
    put_count(s, "kernels", (long)t->kernels);
    put_real(s, "launch_us", t->limits.launch_us);
    put_real(s, "node_gap_us", t->limits.node_us);
    put_real(s, "kernel_gap_us", t->limits.kernel_us);
    put(s, "costs", t->costs);
    put(s, "ceilings", t->ceilings);
    put(s, "trace", t->trace);
    return write_sheet(s, folder, "totals");
}

/* ---- idle ---- */

typedef struct idle_row {
    idle_part like; /* class, host_in; around the longest */
    size_t count;
    double total_us, longest_us;
} idle_row;

static int by_total(const void *a, const void *b)
{
    const double x = ((const idle_row *)a)->total_us, y = ((const idle_row *)b)->total_us;
    return (x < y) - (x > y);
}

static size_t group_idle(const idle_part *p, size_t n, idle_row *rows)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        const double us = p[i].end_us - p[i].start_us;
        size_t k = 0;
        while (k < m && (rows[k].like.class != p[i].class || strcmp(rows[k].like.host_in, p[i].host_in) != 0))
            k++;
        if (k == m)
            rows[m++] = (idle_row){.like = p[i]};
        rows[k].count++;
        rows[k].total_us += us;
        if (us > rows[k].longest_us)
            rows[k].longest_us = us, rows[k].like = p[i];
    }
    if (m)
        qsort(rows, m, sizeof *rows, by_total);
    return m;
}

bool profile_write_idle(const char *folder, const profile_identity *id, const idle_part *parts, size_t n)
{
    sheet *s = open_sheet(id);
    OWNED idle_row *rows = xcalloc(n + 1, sizeof *rows);
    const size_t m = group_idle(parts, n, rows);
    for (size_t i = 0; i < m; i++) {
        begin_row(s);
        put(s, "class", idle_class_name(rows[i].like.class));
        put(s, "host_in", rows[i].like.host_in);
        put_count(s, "count", (long)rows[i].count);
        put_real(s, "total_ms", rows[i].total_us / 1e3);
        put_real(s, "longest_us", rows[i].longest_us);
        put(s, "after", rows[i].like.after);
        put(s, "before", rows[i].like.before);
    }
    return write_sheet(s, folder, "idle");
}

/* ---- ranks ---- */

bool profile_write_overlap(const char *folder, const profile_identity *id, const profile_overlap *o)
{
    static const char *const sets[SWEEP_SETS] = {
        "idle_ms",       "compute_alone_ms", "comm_alone_ms", "compute_comm_ms",
        "copy_alone_ms", "compute_copy_ms",  "comm_copy_ms",  "all_ms"};
    sheet *s = open_sheet(id);
    const sweep_sums *a = &o->own, *b = &o->twin;
    const double comm = sweep_lane_us(a, LANE_COMMUNICATION), exposed = sweep_exposed_us(a);
    const double none = o->has_twin ? 0 : NAN;
    const double compute = none + sweep_lane_us(a, LANE_COMPUTE) - sweep_lane_us(b, LANE_COMPUTE),
                 copy = none + sweep_copy_alone_us(a) - sweep_copy_alone_us(b), idle = none + a->us[0] - b->us[0],
                 slower_ms = none + o->step_ms - o->twin_ms;
    begin_row(s);
    put_real(s, "window_ms", sweep_window_us(a) / 1e3);
    for (int set = 0; set < SWEEP_SETS; set++)
        put_real(s, sets[set], a->us[set] / 1e3);
    put_real(s, "comm_ms", comm / 1e3);
    put_real(s, "exposed_ms", exposed / 1e3);
    put_real(s, "overlapped_pct", comm > 0 ? 100 * (1 - exposed / comm) : NAN);
    put_real(s, "step_ms", o->step_ms);
    put_real(s, "twin_ms", none + o->twin_ms);
    put_real(s, "slower_ms", slower_ms);
    put_real(s, "term_exposed_ms", none + exposed / 1e3);
    put_real(s, "term_compute_ms", compute / 1e3);
    put_real(s, "term_copy_ms", copy / 1e3);
    put_real(s, "term_idle_ms", idle / 1e3);
    put_real(s, "residual_ms", slower_ms - (exposed + compute + copy + idle) / 1e3);
    return write_sheet(s, folder, "overlap");
}

double profile_bus_factor(const char *op, int ranks)
{
    static const struct {
        const char *name;
        collective_op op;
    } of[] = {{"all_reduce", COLLECTIVE_ALL_REDUCE},
              {"all_gather", COLLECTIVE_ALL_GATHER},
              {"reduce_scatter", COLLECTIVE_REDUCE_SCATTER},
              {"broadcast", COLLECTIVE_BROADCAST}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (strcmp(op, of[i].name) == 0)
            return collective_bus_factor(of[i].op, ranks);
    return 0;
}

bool profile_write_collectives(const char *folder, const profile_identity *id, const rank_collective *c,
                               const collective_times *t, const double *bus, size_t n, double first_us)
{
    sheet *s = open_sheet(id);
    for (size_t k = 0; k < n; k++) {
        begin_row(s);
        put_count(s, "k", (long)k);
        put(s, "op", c[k].op);
        put_real(s, "bytes", c[k].bytes > 0 ? c[k].bytes : NAN);
        put_real(s, "start_us", c[k].start_us - first_us);
        put_real(s, "duration_us", c[k].end_us - c[k].start_us);
        put_real(s, "wait_us", t[k].wait_us);
        put_real(s, "transfer_us", t[k].transfer_us);
        put_real(s, "busbw_gb_s",
                 c[k].bytes > 0 && bus[k] > 0 && t[k].transfer_us > 0 ? bus[k] * c[k].bytes / (t[k].transfer_us * 1e3)
                                                                      : NAN);
        put_count(s, "late_rank", t[k].late_rank);
    }
    return write_sheet(s, folder, "collectives");
}
