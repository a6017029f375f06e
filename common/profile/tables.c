/* SPDX-License-Identifier: MIT */
/* Sums over the spans of a window; see tables.h. */
#include "common/profile/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/text.h"

static const double latency_ideal_us = 2, latency_attained_pct = 50;

/* ---- work of a span ---- */

typedef struct op_time { /* of one instance of an op, or of a part of one */
    double us;
    uint64_t node; /* of its first span */
    int runs;
} op_time;

/* The range that carries a span's work: the part, or the op. */
static int work_range(const recording *r, const record_span *s)
{
    return s->range >= 0 && r->ranges[s->range].work.part ? s->range : record_op_range(r, s->range);
}

static op_time *time_ops(const recording *r, const record_span *s, size_t n)
{
    op_time *t = xcalloc(r->range_count + 1, sizeof *t);
    for (size_t i = 0; i < n; i++) {
        const int at = work_range(r, &s[i]);
        if (at < 0)
            continue;
        if (!t[at].runs)
            t[at].node = s[i].node, t[at].runs = 1;
        else if (s[i].node && s[i].node == t[at].node)
            t[at].runs++; /* the same graph, once more */
        t[at].us += s[i].end_us - s[i].start_us;
    }
    return t;
}

static record_work work_of(const recording *r, const record_span *s, const op_time *ops)
{
    const int at = work_range(r, s);
    if (at < 0)
        return (record_work){.bytes = s->kind == RECORD_COPY && s->lane == LANE_COMPUTE ? 2 * s->bytes : s->bytes};
    record_work w = r->ranges[at].work;
    const double share = ops[at].us > 0 ? (s->end_us - s->start_us) / ops[at].us * ops[at].runs : 0;
    w.flops *= share;
    w.bytes *= share;
    return w;
}

/* ---- kernels ---- */

static bool alike(const kernel_row *k, const char *range, const char *op, const record_span *s)
{
    return k->lane == s->lane && k->kernel == s->kernel && strcmp(k->range, range) == 0 && strcmp(k->op, op) == 0 &&
           memcmp(k->grid, s->grid, sizeof s->grid) == 0 && memcmp(k->block, s->block, sizeof s->block) == 0;
}

static kernel_row *row_of(profile_tables *t, const recording *r, const record_span *s, size_t *room)
{
    const record_work *work = record_op(r, s->range);
    const char *range = s->range >= 0 ? r->ranges[s->range].path : "unattributed";
    const char *op = work ? work->op : "";
    for (size_t i = 0; i < t->kernel_count; i++)
        if (alike(&t->kernels[i], range, op, s))
            return &t->kernels[i];
    LIST_ADD(t->kernels, t->kernel_count, *room,
             (kernel_row){.range = range, .kernel = s->kernel, .name = s->name, .op = op, .lane = s->lane});
    kernel_row *k = &t->kernels[t->kernel_count - 1];
    memcpy(k->grid, s->grid, sizeof k->grid);
    memcpy(k->block, s->block, sizeof k->block);
    return k;
}

static void place(kernel_row *k, const record_work *w, const profile_ceilings *c)
{
    const bool product = w->dtype && w->flops != 0; /* of how many FLOPs can be unknown */
    const double flop_us = product ? w->flops / (c->tflops(c->user, w->dtype) * 1e6) : 0;
    const double byte_us = w->bytes > 0 ? w->bytes / (c->copy_gb_s * 1e3) : 0;
    k->flops += w->flops;
    k->bytes += w->bytes;
    k->flop_us += flop_us;
    k->byte_us += byte_us;
    k->ideal_us += isnan(flop_us) || isnan(byte_us) ? NAN : fmax(flop_us, byte_us);
    k->dtype = w->dtype;
}

double kernel_attained_pct(const kernel_row *k)
{
    return k->lane == LANE_COMPUTE && k->flops + k->bytes > 0 ? 100 * k->ideal_us / k->total_us : NAN;
}

double kernel_lost_us(const kernel_row *k)
{
    return isnan(kernel_attained_pct(k)) ? NAN : fmax(0, k->total_us - k->ideal_us);
}

const char *kernel_bound(const kernel_row *k)
{
    const double attained = kernel_attained_pct(k);
    if (isnan(attained))
        return "";
    if (k->calls && k->ideal_us / (double)k->calls < latency_ideal_us && attained < latency_attained_pct)
        return "latency";
    return k->flop_us > k->byte_us ? "compute" : "memory";
}

static int by_loss(const void *a, const void *b)
{
    const double x = kernel_lost_us(a), y = kernel_lost_us(b);
    if (!isnan(x) && !isnan(y) && x != y)
        return x > y ? -1 : 1;
    if (isnan(x) != isnan(y))
        return isnan(x) ? 1 : -1;
    const double s = ((const kernel_row *)a)->total_us, t = ((const kernel_row *)b)->total_us;
    return (s < t) - (s > t);
}

static void fill_kernels(profile_tables *t, const recording *r, const record_span *s, size_t n, const op_time *ops,
                         const profile_ceilings *c)
{
    OWNED double *beside = xcalloc(n + 1, sizeof *beside);
    size_t room = 0;
    sweep_beside(s, n, beside);
    for (size_t i = 0; i < n; i++) {
        kernel_row *k = row_of(t, r, &s[i], &room);
        const record_work work = work_of(r, &s[i], ops);
        const double us = s[i].end_us - s[i].start_us;
        k->calls++;
        k->total_us += us;
        k->beside_us += beside[i];
        place(k, &work, c);
        t->kernel_us += us;
        t->attributed_us += s[i].range >= 0 ? us : 0;
    }
    if (t->kernel_count)
        qsort(t->kernels, t->kernel_count, sizeof *t->kernels, by_loss);
}

/* ---- products ---- */

/* 0 forward, 1 backward, 2 update. The loss belongs to the forward. */
static int phase_of(const recording *r, const record_span *s)
{
    const record_work *work = record_op(r, s->range);
    const char *path = s->range >= 0 ? r->ranges[s->range].path : "";
    if ((work && (strcmp(work->op, "AdamW") == 0 || strcmp(work->op, "optimizer state") == 0 ||
                  strcmp(work->op, "gradient norm") == 0)) ||
        text_starts(path, "optimizer"))
        return 2;
    return text_starts(path, "backward") || (work && strcmp(work->op, "attention backward") == 0) ? 1 : 0;
}

static void add_product(products_row *p, const recording *r, const record_span *s)
{
    const record_work *op = record_op(r, s->range);
    const bool part = s->range >= 0 && r->ranges[s->range].work.part;
    const char *name = part ? r->ranges[s->range].name : op ? op->op : "";
    const double us = s->end_us - s->start_us;
    if (text_starts(name, "matmul") || strcmp(name, "scores") == 0 || strcmp(name, "value") == 0)
        p->gemm_us += us;
    else if (text_starts(name, "attention"))
        p->attention_us += us;
    else
        p->other_us += us;
}

static void fill_products(profile_tables *t, const recording *r, const record_span *s, size_t n)
{
    static const char *const modes[PRODUCTS_ROWS] = {"forward", "forward-backward", "train-step"};
    OWNED record_span *kept = xmalloc((n + 1) * sizeof *kept);
    bool there[PRODUCTS_ROWS] = {false};
    for (size_t i = 0; i < n; i++)
        there[phase_of(r, &s[i])] = true;
    for (int last = 0; last < PRODUCTS_ROWS; last++) {
        if (!there[last])
            continue;
        products_row *p = &t->products[t->product_count++];
        double from = INFINITY, to = -INFINITY;
        size_t m = 0;
        *p = (products_row){.mode = modes[last]};
        for (size_t i = 0; i < n; i++) {
            if (phase_of(r, &s[i]) > last)
                continue;
            if (s[i].lane == LANE_COMPUTE)
                add_product(p, r, &s[i]);
            from = fmin(from, s[i].start_us), to = fmax(to, s[i].end_us);
            kept[m++] = s[i];
        }
        const sweep_sums sums = sweep(kept, m, from, to);
        p->span_us = to - from;
        p->idle_us = sums.us[0];
    }
}

/* ---- softmax ---- */

static int part_of(const record_range *range)
{
    static const char *const names[] = {"scores", "mask", "softmax", "value"};
    for (int i = 0; range->work.part && i < PART_WHOLE; i++)
        if (strcmp(range->name, names[i]) == 0)
            return i;
    return PART_WHOLE;
}

static void fill_softmax(profile_tables *t, const recording *r, const record_span *s, size_t n, const op_time *ops)
{
    softmax_row of[2] = {{.pass = "forward"}, {.pass = "backward"}};
    for (size_t i = 0; i < n; i++) {
        const record_work *op = record_op(r, s[i].range), work = work_of(r, &s[i], ops);
        if (!op || !text_starts(op->op, "attention"))
            continue;
        softmax_row *row = &of[strcmp(op->op, "attention backward") == 0];
        const int part = part_of(&r->ranges[s[i].range]);
        row->us[part] += s[i].end_us - s[i].start_us;
        row->flops[part] += work.flops;
        row->bytes[part] += work.bytes;
    }
    for (int pass = 0; pass < 2; pass++) {
        double us = 0;
        for (int part = 0; part < PARTS_OF_ATTENTION; part++)
            us += of[pass].us[part];
        if (us > 0)
            t->softmax[t->softmax_count++] = of[pass];
    }
}

profile_tables *profile_tables_of(const recording *r, record_window w, const profile_ceilings *ceilings)
{
    profile_tables *t = xcalloc(1, sizeof *t);
    size_t n;
    OWNED record_span *s = record_cut(r, w, &n);
    if (!r->host_spans)
        sweep_charge(s, n);
    OWNED op_time *ops = time_ops(r, s, n);
    fill_kernels(t, r, s, n, ops, ceilings);
    fill_products(t, r, s, n);
    fill_softmax(t, r, s, n, ops);
    t->sums = sweep(s, n, w.from_us, w.to_us);
    return t;
}

void profile_tables_free(profile_tables *t)
{
    if (!t)
        return;
    free(t->kernels);
    free(t);
}
