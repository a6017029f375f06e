/* SPDX-License-Identifier: MIT */
/* The row of a case: statistics over steps, the difference to its compute-only step, rates, memory; see row.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/ddp/row.h"
#include "bench/model/timing.h"
#include "common/core/error.h"
#include "common/core/stats.h"

static double percentile(const samples *x, double p)
{
    OWNED double *sorted = xmalloc(x->n * sizeof *sorted);
    memcpy(sorted, x->x, x->n * sizeof *sorted);
    qsort(sorted, x->n, sizeof *sorted, ascending);
    return quantile_nearest(sorted, x->n, p);
}

static void fill_steps(row *w, const ddp_times *m)
{
    const stats step = stats_of(&m->step), compute = stats_of(&m->compute);
    double low, high;
    median_difference_interval(&m->step, &m->compute, &low, &high);
    row_real(w, "step_ms", step.median);
    row_real(w, "step_mean_ms", step.mean);
    row_real(w, "step_std_ms", step.stdev);
    row_real(w, "step_p5_ms", percentile(&m->step, 0.05));
    row_real(w, "step_p95_ms", percentile(&m->step, 0.95));
    row_int(w, "n_steps", (int64_t)step.n);
    row_real(w, "compute_ms", compute.median);
    row_real(w, "exposed_ms", step.median - compute.median);
    row_real(w, "exposed_lo_ms", low);
    row_real(w, "exposed_hi_ms", high);
    row_real(w, "comm_pct", 100 * (step.median - compute.median) / step.median);
    row_real(w, "loss_first", m->loss_first);
    row_real(w, "loss_third", m->loss_third);
    row_real(w, "loss_last", m->loss_last);
}

static void fill_communication(const ddp_case *k, const replica *r, const ddp_times *m)
{
    const trainer_state s = trainer_state_of(r->t);
    const double exposed = stats_of(&m->step).median - stats_of(&m->compute).median;
    const double bytes = replica_wire_bytes(r);
    row_real(k->w, "tail_ms", m->tail);
    row_real(k->w, "contention_ms", exposed - m->tail);
    row_real(k->w, "comm_alone_ms", m->comm_alone);
    row_real(k->w, "wire_bytes", bytes);
    if (k->ranks > 1) { /* one rank has nothing to hide */
        row_real(k->w, "hidden_pct", 100 * (1 - exposed / m->comm_alone));
        row_real(k->w, "wire_gb_s", bytes / (m->comm_alone * 1e6));
    }
    if (ddp_has_column(k, "gather_wait_ms")) {
        row_real(k->w, "gather_wait_ms", m->gather_wait);
        row_real(k->w, "reduced_wait_ms", m->reduced_wait);
        row_int(k->w, "gathered_bytes", r->plan->gathered_bytes);
        row_text(k->w, "gathered_dtype",
                 r->plan->gathered_bytes == 0 ? ""
                 : s.codes.slices != NULL     ? "e4m3"
                                              : sb_dtype_name(s.param_dtype));
    }
    const bool alternate = k->o.micro_batches > 1; /* forwards and backwards */
    row_real(k->w, "fwd_ms", alternate ? NAN : m->forward);
    row_real(k->w, "bwd_ms", alternate ? NAN : m->backward);
    row_real(k->w, "after_ms", m->after);
    row_real(k->w, "opt_ms", m->after - m->tail);
    row_int(k->w, "phase_rank", m->phase_rank);
    row_real(k->w, "opt_alone_ms", m->opt_alone);
}

static void fill_ranks(const ddp_case *k, const ddp_times *m)
{
    const double mine = m->own.n ? stats_of(&m->own).median : 0;
    OWNED double *all = launch_gathered(k->l, "medians", &mine, sizeof mine);
    int slowest = 0;
    for (int r = 0; r < k->ranks; r++)
        slowest = all[r] > all[slowest] ? r : slowest;
    row_numbers(k->w, "rank_step_ms", all, k->ranks, 6);
    row_int(k->w, "slowest_rank", slowest);
}

/* The sequences that this rank shares with others, whole. */
static transformer_shape whole_shape(const ddp_case *k)
{
    transformer_shape shape = model_shape(&k->o);
    shape.seq = step_context_shape(&k->o).seq;
    return shape;
}

static void fill_rates(const ddp_case *k, double step_ms)
{
    const transformer_shape mine = model_shape(&k->o), shape = whole_shape(k);
    const double causal = transformer_step_flops(&shape, FLOPS_CAUSAL),
                 full = transformer_step_flops(&shape, FLOPS_FULL);
    const double sharers = step_context_ranks(&k->o), peak = model_peak_of(k->s, &k->o);
    const double to_tflops = 1 / (step_ms * 1e9 * sharers);
    row_real(k->w, "tokens_per_s", k->ranks * transformer_tokens(&mine) / (step_ms * 1e-3));
    row_real(k->w, "tflops", causal * to_tflops);
    row_real(k->w, "mfu_causal_pct", 100 * causal * to_tflops / peak);
    row_real(k->w, "mfu_full_pct", 100 * full * to_tflops / peak);
    if (ddp_has_column(k, "speedup_bf16"))
        model_fill_float8(k->s, k->c, k->w, &k->o, causal / sharers, causal * to_tflops, step_ms);
}

/* The energy of all ranks' GPUs together: each has its mean power for as long as its steps take. */
static double step_energy_j(const ddp_case *k, const ddp_times *m)
{
    const double mine = m->own.n ? stats_of(&m->energy_w).mean * stats_of(&m->own).mean * 1e-3 : NAN;
    return launch_sum(k->l, "energy", mine, k->ranks);
}

static void fill_energy(const ddp_case *k, const ddp_times *m)
{
    const transformer_shape shape = model_shape(&k->o);
    const double joules = step_energy_j(k, m);
    row_real(k->w, "step_j", joules);
    row_real(k->w, "tokens_per_j", k->ranks * transformer_tokens(&shape) / joules);
}

static int64_t largest_bucket(const buckets *b)
{
    int64_t most = 0;
    for (int i = 0; i < b->n; i++)
        most = b->b[i].count > most ? b->b[i].count : most;
    return most;
}

/* The columns that are not times. */
static void fill_case(const ddp_case *k, const replica *r, const ddp_times *m)
{
    const double peak = ddp_most(k, "peak", r->member ? (double)trainer_memory_of(r->t).allocated : 0);
    char checksum[20] = "";
    if (m->checksum)
        snprintf(checksum, sizeof checksum, "%016llx", (unsigned long long)m->checksum);
    row_int(k->w, "global_batch", model_shape(&k->o).batch * k->ranks / step_context_ranks(&k->o));
    row_int(k->w, "buckets", r->plan->b.n);
    row_real(k->w, "peak_bytes", peak);
    row_real(k->w, "device_used_bytes", m->used_bytes);
    row_int(k->w, "params", model_parameters(&k->o.config));
    row_int(k->w, "hosts", launch_hosts(k->l));
    row_text(k->w, "checksum", checksum);
    if (!r->member)
        return;
    const sb_dtype grads = trainer_state_of(r->t).grad_dtype;
    row_text(k->w, "backend", parallel_backend(r->p));
    row_text(k->w, "wire_dtype", comm_dtype_name(replica_comm_dtype(grads)));
    row_int(k->w, "bucket_bytes", largest_bucket(&r->plan->b) * sb_dtype_bytes(grads));
}

void ddp_fill_row(ddp_case *k, const replica *r, const ddp_times *m)
{
    fill_case(k, r, m);
    fill_steps(k->w, m);
    fill_ranks(k, m);
    fill_rates(k, stats_of(&m->step).median);
    fill_energy(k, m);
    if (r->member) /* as rank 0 is, which writes the row */
        fill_communication(k, r, m);
}
