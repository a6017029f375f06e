/* SPDX-License-Identifier: MIT */
/* The row of a run; see row.h. */
#include "bench/run/row.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/model/beside.h"
#include "common/core/error.h"

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(const double *x, int64_t n)
{
    samples s = {0};
    for (int64_t i = 0; i < n; i++)
        samples_add(&s, x[i]);
    const double median = stats_of(&s).median;
    samples_free(&s);
    return median;
}

/* Times of the steps that count, of the slowest rank each. Caller frees. */
static double *times_of(const run *x, int64_t n)
{
    double *ms = xcalloc((size_t)n, sizeof *ms);
    for (int64_t i = 0; i < n; i++)
        for (int r = 0; r < x->k.ranks; r++)
            ms[i] = fmax(ms[i], x->all[((int64_t)r * x->steps + run_counted(x) + i) * PER_STEP + PER_STEP_MS]);
    return ms;
}

/* Returns the median. */
static double fill_times(run *x, int64_t n)
{
    row *w = x->k.w;
    OWNED double *ms = times_of(x, n);
    const double median = median_of(ms, n), quarter = n / 4 > 0 ? (double)(n / 4) : 1;
    int64_t slowest = 0, longer = 0;
    for (int64_t i = 0; i < n; i++) {
        slowest = ms[i] > ms[slowest] ? i : slowest;
        longer += ms[i] > 1.5 * median;
    }
    row_int(w, "n_steps", n);
    row_real(w, "step_ms", median);
    row_real(w, "step_max_ms", ms[slowest]);
    row_int(w, "slowest_step", run_counted(x) + slowest + 1);
    row_int(w, "long_steps", longer);
    row_real(w, "drift_pct",
             100 * (median_of(ms + n - (int64_t)quarter, (int64_t)quarter) / median_of(ms, (int64_t)quarter) - 1));
    qsort(ms, (size_t)n, sizeof *ms, compare);
    row_real(w, "step_p95_ms", quantile_nearest(ms, (size_t)n, 0.95));
    row_real(w, "step_p99_ms", quantile_nearest(ms, (size_t)n, 0.99));
    row_real(w, "jitter", quantile_nearest(ms, (size_t)n, 0.99) / median);
    return median;
}

static void fill_ladder(run *x, double wall_ms)
{
    row *w = x->k.w;
    double low, high;
    if (x->bare.n == 0)
        return;
    const double bare = stats_of(&x->bare).median, fed = stats_of(&x->fed).median;
    median_difference_interval(&x->fed, &x->bare, &low, &high);
    row_real(w, "bare_ms", bare);
    row_real(w, "fed_ms", fed);
    row_real(w, "cost_ms", fed - bare);
    row_real(w, "cost_lo_ms", low);
    row_real(w, "cost_hi_ms", high);
    row_real(w, "cost_pct", 100 * (fed - bare) / bare);
    row_real(w, "rest_pct", 100 * (wall_ms - fed) / wall_ms);
}

static void fill_loss(run *x, const run_result *out)
{
    row *w = x->k.w;
    row_real(w, "loss_first", out->loss_first);
    row_real(w, "loss_last", out->loss_last);
    row_real(w, "floor_loss", out->floor);
    row_real(w, "above_floor_pct", 100 * (out->loss_last / out->floor - 1));
    row_real(w, "loss_gap_pct", 100 * (of_bf16(x->k.s, x->k.c, "loss_last", out->loss_last) - 1));
    row_real(w, "entropy_pair", out->entropy[2]);
    row_real(w, "entropy_token", out->entropy[1]);
    row_real(w, "entropy_none", out->entropy[0]);
    row_real(w, "excess", out->excess);
    row_real(w, "excess_sigma", out->sigma);
    row_real(w, "norm_last", out->norm);
    row_real(w, "rate_last", out->rate);
    row_int(w, "updates", out->updates);
    row_int(w, "outliers", x->log.outliers);
}

static void fill_saves(run *x)
{
    static const char *const ways[] = {"sync", "async", "lazy", "device"};
    const run_save *v = &x->save;
    row *w = x->k.w;
    row_int(w, "first_step", x->first);
    const double waited = ddp_most(&x->k, "save wait", v->waited_s * 1e3);
    if (x->rung != RUNG_SAVE)
        return;
    row_text(w, "way", ways[v->way]);
    row_int(w, "save_every", v->every);
    row_int(w, "saves", v->saved);
    row_real(w, "save_ms", stats_of(&v->cost_ms).median);
    row_real(w, "durable_ms", stats_of(&v->durable_ms).median);
    row_real(w, "save_wait_ms", waited);
    if (v->state)
        row_int(w, "state_bytes", v->state->layout->bytes);
}

void run_fill_row(run *x, const run_result *out)
{
    row *w = x->k.w;
    const int64_t n = x->steps - run_counted(x);
    const double wall_s = ddp_most(&x->k, "wall time", x->r->member ? x->wall_s : 0),
                 wall_ms = wall_s * 1e3 / (double)n;
    const double waited = ddp_most(&x->k, "data wait", x->waited_s - x->waited_before_s) * 1e3 / (double)n;
    const double logged = ddp_most(&x->k, "log time", x->log.waited_s) * 1e3 / (double)n;
    const double peak = ddp_most(&x->k, "peak", x->r->member ? (double)trainer_memory_of(x->r->t).allocated : 0);
    const int64_t global = x->batch * x->ranks;
    char checksum[20] = "";
    if (out->checksum)
        snprintf(checksum, sizeof checksum, "%016llx", (unsigned long long)out->checksum);
    row_int(w, "global_batch", global);
    row_int(w, "tokens", x->steps * global * x->k.o.seq);
    const double step_ms = fill_times(x, n), flops = model_flops(&x->k.o, FLOPS_CAUSAL);
    row_real(w, "wall_s", wall_s);
    row_real(w, "wall_ms", wall_ms);
    fill_ladder(x, wall_ms);
    row_real(w, "data_wait_ms", waited);
    row_real(w, "data_wait_pct", 100 * waited / wall_ms);
    row_real(w, "log_ms", logged);
    row_real(w, "tokens_per_s", (double)(global * x->k.o.seq) / (wall_ms * 1e-3));
    row_real(w, "mfu_causal_pct", run_mfu_pct(x, wall_ms));
    model_fill_float8(x->k.s, x->k.c, w, &x->k.o, flops, flops / (wall_ms * 1e9), step_ms);
    fill_loss(x, out);
    fill_saves(x);
    row_text(w, "checksum", checksum);
    row_real(w, "peak_bytes", peak);
    row_int(w, "params", model_parameters(&x->k.o.config));
    row_int(w, "hosts", launch_hosts(x->k.l));
    if (x->r->member)
        row_text(w, "backend", parallel_backend(x->r->p));
}
