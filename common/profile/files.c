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

#define IDENTITY "bench,variant,case,measurement,rank,ranks,run_id,campaign,machine,gpu,device,commit,"

typedef struct sheet { /* rows of one table, before they are written */
    const profile_identity *id;
    FILE *f;
    char *text;
    size_t bytes;
} sheet;

static sheet sheet_of(const profile_identity *id)
{
    sheet s = {.id = id};
    return s;
}

static void open_sheet(sheet *s)
{
    s->f = open_memstream(&s->text, &s->bytes);
    if (!s->f)
        die(EXIT_CODE_FAILURE, "no host memory left for a profile");
}

static void put(sheet *s, const char *text)
{
    const size_t bytes = csv_quote(text, NULL, 0) + 1;
    char *quoted = xmalloc(bytes);
    csv_quote(text, quoted, bytes);
    fprintf(s->f, "%s,", quoted);
    free(quoted);
}

static void put_real(sheet *s, double x)
{
    if (isnan(x))
        fprintf(s->f, "nan,");
    else
        fprintf(s->f, "%.9g,", x);
}

static void begin_row(sheet *s)
{
    const profile_identity *i = s->id;
    const char *const before[] = {i->bench, i->variant, i->key, i->measurement};
    const char *const after[] = {i->run_id, i->campaign, i->machine, i->gpu, i->device, i->commit};
    for (size_t k = 0; k < sizeof before / sizeof *before; k++)
        put(s, before[k]);
    fprintf(s->f, "%d,%d,", i->rank, i->ranks);
    for (size_t k = 0; k < sizeof after / sizeof *after; k++)
        put(s, after[k]);
}

static void end_row(sheet *s)
{
    fseek(s->f, -1, SEEK_CUR); /* the last comma */
    fputc('\n', s->f);
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
        char *aside = xasprintf("%.*s.%d.csv", (int)(strlen(path) - strlen(".csv")), path, n);
        const bool moved = access(aside, F_OK) != 0 && rename(path, aside) == 0;
        free(aside);
        if (moved || errno != ENOENT || n == 1000)
            return;
    }
}

static bool write_sheet(sheet *s, const char *folder, const char *table, const char *header)
{
    char *path = xasprintf("%s/%s.csv", folder, table);
    fclose(s->f);
    move_aside(path, header);
    const bool ok = s->bytes == 0 || append_text(path, header, "", s->text, "");
    const int error = errno;
    free(s->text);
    free(path);
    errno = error;
    return ok;
}

/* ---- tables ---- */

static void put_dim(sheet *s, const int dim[3])
{
    if (dim[0])
        fprintf(s->f, "%dx%dx%d,", dim[0], dim[1], dim[2]);
    else
        fprintf(s->f, ",");
}

bool profile_write_kernels(const char *folder, const profile_identity *id, const profile_tables *t)
{
    sheet s = sheet_of(id);
    open_sheet(&s);
    for (size_t i = 0; i < t->kernel_count; i++) {
        const kernel_row *k = &t->kernels[i];
        begin_row(&s);
        put(&s, k->range);
        put(&s, k->kernel);
        put(&s, k->name);
        put(&s, k->op);
        put(&s, record_lane_name(k->lane));
        put_dim(&s, k->grid);
        put_dim(&s, k->block);
        fprintf(s.f, "%zu,", k->calls);
        put_real(&s, k->total_us / 1e3);
        put_real(&s, k->total_us / (double)k->calls);
        put_real(&s, 100 * k->total_us / t->kernel_us);
        put_real(&s, k->flops / 1e12);
        put_real(&s, k->bytes / 1e9);
        put(&s, k->dtype ? k->dtype : "");
        put(&s, kernel_bound(k));
        put_real(&s, kernel_attained_pct(k));
        put_real(&s, kernel_lost_us(k) / 1e3);
        put_real(&s, 100 * k->beside_us / k->total_us);
        end_row(&s);
    }
    return write_sheet(&s, folder, "kernels",
                       IDENTITY "range,kernel,name,op,lane,grid,block,calls,total_ms,mean_us,share_pct,tflop,gb,dtype,"
                                "bound,attained_pct,lost_ms,beside_pct\n");
}

bool profile_write_products(const char *folder, const profile_identity *id, const profile_tables *t)
{
    sheet s = sheet_of(id);
    open_sheet(&s);
    for (int i = 0; i < t->product_count; i++) {
        const products_row *p = &t->products[i];
        const double all = p->gemm_us + p->attention_us + p->other_us;
        begin_row(&s);
        put(&s, p->mode);
        put_real(&s, p->gemm_us / 1e3);
        put_real(&s, p->attention_us / 1e3);
        put_real(&s, p->other_us / 1e3);
        put_real(&s, 100 * p->gemm_us / all);
        put_real(&s, 100 * p->attention_us / all);
        put_real(&s, 100 * p->other_us / all);
        put_real(&s, p->span_us / 1e3);
        put_real(&s, 100 * p->idle_us / p->span_us);
        end_row(&s);
    }
    return write_sheet(&s, folder, "products",
                       IDENTITY "mode,gemm_ms,attention_ms,other_ms,gemm_pct,attention_pct,other_pct,span_ms,"
                                "idle_pct\n");
}

bool profile_write_softmax(const char *folder, const profile_identity *id, const profile_tables *t)
{
    sheet s = sheet_of(id);
    open_sheet(&s);
    for (int i = 0; i < t->softmax_count; i++) {
        const softmax_row *x = &t->softmax[i];
        const double products_us = x->us[PART_SCORES] + x->us[PART_VALUE];
        begin_row(&s);
        put(&s, x->pass);
        put(&s, x->us[PART_WHOLE] > 0 ? "one kernel" : "parts");
        for (int part = 0; part < PARTS_OF_ATTENTION; part++)
            put_real(&s, x->us[part] / 1e3);
        for (int part = 0; part < PARTS_OF_ATTENTION; part++)
            put_real(&s, x->flops[part] / 1e12);
        for (int part = 0; part < PARTS_OF_ATTENTION; part++)
            put_real(&s, x->bytes[part] / 1e9);
        put_real(&s, products_us > 0 ? x->us[PART_SOFTMAX] / products_us : NAN);
        put_real(&s, products_us > 0 ? x->flops[PART_SOFTMAX] / (x->flops[PART_SCORES] + x->flops[PART_VALUE]) : NAN);
        put_real(&s, products_us > 0 ? x->bytes[PART_SOFTMAX] / (x->bytes[PART_SCORES] + x->bytes[PART_VALUE]) : NAN);
        end_row(&s);
    }
    return write_sheet(&s, folder, "softmax",
                       IDENTITY "pass,form,scores_ms,mask_ms,softmax_ms,value_ms,whole_ms,scores_tflop,mask_tflop,"
                                "softmax_tflop,value_tflop,whole_tflop,scores_gb,mask_gb,softmax_gb,value_gb,whole_gb,"
                                "time_ratio,flop_ratio,byte_ratio\n");
}

bool profile_write_totals(const char *folder, const profile_identity *id, const profile_totals *t)
{
    sheet s = sheet_of(id);
    open_sheet(&s);
    begin_row(&s);
    put_real(&s, t->window_us / 1e3);
    put_real(&s, t->busy_us / 1e3);
    put_real(&s, t->kernel_us / 1e3);
    put_real(&s, t->timed_ms);
    put_real(&s, t->event_ms);
    put_real(&s, t->recorded_event_ms);
    put_real(&s, t->host_ms);
    put_real(&s, 100 * (t->recorded_event_ms / t->event_ms - 1));
    put_real(&s, t->attributed_pct);
    fprintf(s.f, "%zu,", t->kernels);
    put_real(&s, t->limits.launch_us);
    put_real(&s, t->limits.node_us);
    put_real(&s, t->limits.kernel_us);
    put(&s, t->costs);
    put(&s, t->ceilings);
    put(&s, t->trace);
    end_row(&s);
    return write_sheet(&s, folder, "totals",
                       IDENTITY
                       "window_ms,busy_ms,kernel_ms,timed_ms,event_ms,recorded_event_ms,host_ms,profiler_overhead_pct,"
                       "attributed_pct,kernels,launch_us,node_gap_us,kernel_gap_us,costs,ceilings,trace\n");
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
    sheet s = sheet_of(id);
    idle_row *rows = xcalloc(n + 1, sizeof *rows);
    const size_t m = group_idle(parts, n, rows);
    open_sheet(&s);
    for (size_t i = 0; i < m; i++) {
        begin_row(&s);
        put(&s, idle_class_name(rows[i].like.class));
        put(&s, rows[i].like.host_in);
        fprintf(s.f, "%zu,", rows[i].count);
        put_real(&s, rows[i].total_us / 1e3);
        put_real(&s, rows[i].longest_us);
        put(&s, rows[i].like.after);
        put(&s, rows[i].like.before);
        end_row(&s);
    }
    free(rows);
    return write_sheet(&s, folder, "idle", IDENTITY "class,host_in,count,total_ms,longest_us,after,before\n");
}

/* ---- ranks ---- */

static double compute_union(const sweep_sums *s)
{
    return sweep_lane_us(s, LANE_COMPUTE);
}

bool profile_write_overlap(const char *folder, const profile_identity *id, const profile_overlap *o)
{
    sheet s = sheet_of(id);
    const sweep_sums *a = &o->own, *b = &o->twin;
    const double comm = sweep_lane_us(a, LANE_COMMUNICATION), exposed = sweep_exposed_us(a);
    const double none = o->has_twin ? 0 : NAN;
    const double compute = none + compute_union(a) - compute_union(b),
                 copy = none + sweep_copy_alone_us(a) - sweep_copy_alone_us(b), idle = none + a->us[0] - b->us[0],
                 slower_ms = none + o->step_ms - o->twin_ms;
    open_sheet(&s);
    begin_row(&s);
    put_real(&s, sweep_window_us(a) / 1e3);
    for (int set = 0; set < SWEEP_SETS; set++)
        put_real(&s, a->us[set] / 1e3);
    put_real(&s, comm / 1e3);
    put_real(&s, exposed / 1e3);
    put_real(&s, comm > 0 ? 100 * (1 - exposed / comm) : NAN);
    put_real(&s, o->step_ms);
    put_real(&s, none + o->twin_ms);
    put_real(&s, slower_ms);
    put_real(&s, none + exposed / 1e3);
    put_real(&s, compute / 1e3);
    put_real(&s, copy / 1e3);
    put_real(&s, idle / 1e3);
    put_real(&s, slower_ms - (exposed + compute + copy + idle) / 1e3);
    end_row(&s);
    return write_sheet(&s, folder, "overlap",
                       IDENTITY "window_ms,idle_ms,compute_alone_ms,comm_alone_ms,compute_comm_ms,copy_alone_ms,"
                                "compute_copy_ms,comm_copy_ms,all_ms,comm_ms,exposed_ms,overlapped_pct,step_ms,twin_ms,"
                                "slower_ms,term_exposed_ms,term_compute_ms,term_copy_ms,term_idle_ms,residual_ms\n");
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
    sheet s = sheet_of(id);
    open_sheet(&s);
    for (size_t k = 0; k < n; k++) {
        begin_row(&s);
        fprintf(s.f, "%zu,", k);
        put(&s, c[k].op);
        put_real(&s, c[k].bytes > 0 ? c[k].bytes : NAN);
        put_real(&s, c[k].start_us - first_us);
        put_real(&s, c[k].end_us - c[k].start_us);
        put_real(&s, t[k].wait_us);
        put_real(&s, t[k].transfer_us);
        put_real(&s, c[k].bytes > 0 && bus[k] > 0 && t[k].transfer_us > 0
                         ? bus[k] * c[k].bytes / (t[k].transfer_us * 1e3)
                         : NAN);
        fprintf(s.f, "%d,", t[k].late_rank);
        end_row(&s);
    }
    return write_sheet(&s, folder, "collectives",
                       IDENTITY "k,op,bytes,start_us,duration_us,wait_us,transfer_us,busbw_gb_s,late_rank\n");
}
