/* SPDX-License-Identifier: MIT */
/* The model of buckets: what an all-reduce costs per call and per byte on these ranks, fitted to measurements of this
 * run, and what that predicts for a case; see row.h and formulas/accounting.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/ddp/row.h"
#include "bench/model/beside.h"
#include "common/core/error.h"
#include "common/core/units.h"
#include "common/formulas/accounting.h"
#include "common/formulas/exposed.h"
#include "common/session/watchdog.h"

enum { SIZES_MAX = 13, CALLS_MAX = 20 };

typedef struct bucket_fit {
    call_cost cost; /* NAN where it could not be measured */
    int sizes;      /* measured; 0: none */
    double bytes[SIZES_MAX], seconds[SIZES_MAX];
} bucket_fit;

typedef struct sweep {
    double first, factor; /* bytes */
    int sizes, samples;
    double call_bytes; /* bytes of a sample, of at most CALLS_MAX calls */
} sweep;
/* From 0.25 MB to 1 GB; from 16 KB to 4 MB. */
static const sweep gpu_sweep = {0x1p18, 2, SIZES_MAX, 10, 0x1p26}, cpu_sweep = {0x1p14, 4, 5, 5, 0};

static double size_at(const sweep *s, int i)
{
    return s->first * pow(s->factor, i);
}

/* Milliseconds of a call: each sample is the mean of `calls` back to back, after a barrier. */
static void time_size(device *d, comm *c, void *buffer, size_t bytes, comm_dtype t, int calls, int samples, double *ms)
{
    const size_t count = bytes / comm_dtype_bytes(t);
    device_event *from = device_event_create(d), *to = device_event_create(d);
    for (int i = -1; i < samples; i++) { /* the first is a warm-up */
        comm_barrier(c, device_stream(d));
        device_event_record(d, from);
        for (int n = 0; n < calls; n++)
            comm_all_reduce(c, buffer, buffer, count, t, COMM_SUM, device_stream(d));
        device_event_record(d, to);
        if (i >= 0)
            ms[i] = device_event_ms(d, from, to) / calls;
        else
            device_sync(d);
        watchdog_beat();
    }
    device_event_destroy(d, from);
    device_event_destroy(d, to);
}

/* Seconds of an all-reduce of each size; the median over samples of the slowest rank. */
static void time_sizes(ddp_case *k, comm *c, void *buffer, const sweep *s, int sizes, comm_dtype t, double *seconds)
{
    OWNED double *mine = xcalloc((unsigned long)s->samples, sizeof *mine);
    for (int i = 0; i < sizes; i++) {
        const double bytes = size_at(s, i), calls = fmin(CALLS_MAX, fmax(1, s->call_bytes / bytes));
        samples x = {0};
        if (k->member)
            time_size(k->s->dev, c, buffer, (size_t)bytes, t, (int)calls, s->samples, mine);
        OWNED double *slowest = launch_most_each(k->l, "all-reduce", mine, s->samples, k->ranks);
        for (int n = 0; n < s->samples; n++)
            samples_add(&x, slowest[n]);
        seconds[i] = stats_of(&x).median * 1e-3;
        samples_free(&x);
    }
}

static void measure(ddp_case *k, comm *c, comm_dtype t, bucket_fit *out)
{
    const sweep *s = device_kind_of(k->s->dev) == DEVICE_CPU ? &cpu_sweep : &gpu_sweep;
    void *buffer = NULL;
    int sizes = s->sizes;
    for (; sizes >= 3; sizes--) { /* the largest that fits in the memory of every rank */
        const size_t most = (size_t)size_at(s, sizes - 1);
        buffer = k->member ? memory_alloc(k->s->mem, most, "all-reduces of the fit") : NULL;
        if (launch_all(k->l, "memory", buffer || !k->member))
            break;
        memory_release(k->s->mem, buffer);
        memory_failed_clear(k->s->mem);
    }
    if (sizes < 3)
        return;
    for (int i = 0; i < sizes; i++)
        out->bytes[i] = size_at(s, i);
    if (buffer)
        device_memset(k->s->dev, buffer, 0, (size_t)out->bytes[sizes - 1]); /* zeros: sums of sums stay finite */
    time_sizes(k, c, buffer, s, sizes, t, out->seconds);
    out->cost = call_cost_fit(out->bytes, out->seconds, sizes);
    out->sizes = sizes;
}

static comm_dtype wire_of(const ddp_case *k)
{
    return replica_comm_dtype(k->o.grad_fp32 ? SB_FP32 : k->o.precision->grad);
}

/* The key under which a fit is remembered. */
static char *fit_key(const ddp_case *k)
{
    return xasprintf("%d ranks %s ctas %d", k->ranks, comm_dtype_name(wire_of(k)), k->p.max_ctas);
}

static void make(ddp_case *k, bucket_fit *out)
{
    char why[400] = "";
    *out = (bucket_fit){.cost = {.overhead_s = NAN, .rate = NAN, .residual_pct = NAN}};
    phase_set("all-reduces for the model of buckets");
    comm *c = comm_create(k->l, k->s->dev, &(comm_options){.name = "fit", .ranks = k->ranks, .max_ctas = k->p.max_ctas},
                          why, sizeof why);
    if (!c)
        return;
    measure(k, c, wire_of(k), out);
    comm_destroy(c);
    memory_release_all(k->s->mem);
}

void ddp_fit_make(ddp_case *k)
{
    OWNED char *key = fit_key(k);
    if (k->ranks > 1 && !cache_find(k->s->kept, "bucket fit", key))
        make(k, cache_add(k->s->kept, "bucket fit", key, sizeof(bucket_fit), NULL));
}

/* A sweep of bucket sizes: the parameters that its rows share, and what its first row says of contention. */
typedef struct bucket_sweep {
    char *key;
    double kappa;
    bucket_contention contention;
} bucket_sweep;

static void clear_sweep(void *sweep)
{
    free(((bucket_sweep *)sweep)->key);
}

/* What the plan's buckets should take, by all-reduces of the fit. */
static bucket_load load_of(const ddp_case *k, const bucket_fit *f, const replica *r, const ddp_times *m)
{
    const buckets *b = &r->plan->b;
    const double element = (double)comm_dtype_bytes(wire_of(k));
    bucket_load l = {.window = stats_of(&m->compute).median - m->forward};
    for (int i = 0; i < b->n; i++) {
        l.last = 1e3 * interpolate_log(f->bytes, f->seconds, f->sizes, (double)b->b[i].count * element);
        l.alone += l.last;
    }
    if (k->p.update == UPDATE_AFTER)
        l.window -= m->opt_alone;
    else if (k->p.update == UPDATE_BUCKETS)
        l.last = bucket_last_exposed(l.last, m->opt_alone, b->n);
    return l;
}

static void fill_prediction(ddp_case *k, const bucket_load *l, double exposed, const bucket_contention *known)
{
    const double predicted = known ? bucket_exposed(l, known) : NAN;
    row_real(k->w, "predicted_alone_ms", l->alone);
    row_real(k->w, "predicted_exposed_ms", predicted);
    row_real(k->w, "err_exposed_pct", 100 * (predicted / exposed - 1));
}

void ddp_fill_fit(ddp_case *k, const replica *r, const ddp_times *m)
{
    bucket_sweep *sweep = session_cache(k->s, "bucket sweep", sizeof *sweep, clear_sweep);
    char *key = fit_key(k);
    const bucket_fit *f = cache_find(k->s->kept, "bucket fit", key);
    free(key);
    if (!f)
        return;
    const double bytes = (double)r->plan->elements * (double)comm_dtype_bytes(wire_of(k));
    const bucket_model model = {
        .bytes = bytes, .rate = f->cost.rate, .overhead_s = f->cost.overhead_s, .kappa = sweep->kappa};
    const double bucket = bytes / r->plan->b.n, exposed = stats_of(&m->step).median - stats_of(&m->compute).median;
    const double kappa = (exposed - m->tail) / m->comm_alone;
    key = key_without(k->c, (const char *const[]){"bucket_mb", NULL});
    const bool goes_on = sweep->key && strcmp(sweep->key, key) == 0;
    double ms[SIZES_MAX];
    for (int i = 0; i < f->sizes; i++)
        ms[i] = f->seconds[i] * 1e3;
    row_numbers(k->w, "fit_bytes", f->bytes, f->sizes, 12);
    row_numbers(k->w, "fit_ms", ms, f->sizes, 9);
    row_real(k->w, "o_us", f->cost.overhead_s * 1e6);
    row_real(k->w, "w_gb_s", f->cost.rate * 1e-9);
    row_real(k->w, "fit_residual_pct", f->cost.residual_pct);
    row_real(k->w, "predicted_ms", bucket_overhead(&model, bucket) * 1e3);
    row_real(k->w, "predicted_best_mb", f->cost.overhead_s > 0 ? bucket_best(&model) / MIB : NAN);
    row_real(k->w, "kappa", kappa);
    if (goes_on)
        row_real(k->w, "predicted_contention_ms", bucket_overhead_contention(&model, bucket) * 1e3);
    const bucket_load load = f->sizes ? load_of(k, f, r, m) : (bucket_load){NAN, NAN, NAN};
    fill_prediction(k, &load, exposed, goes_on ? &sweep->contention : NULL);
    if (goes_on) {
        free(key);
        return;
    }
    free(sweep->key);
    *sweep = (bucket_sweep){key, kappa, bucket_contention_of(&load, exposed, m->tail)};
}
