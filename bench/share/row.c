/* SPDX-License-Identifier: MIT */
/* The row of a case; see share.h. */
#include "bench/share/share.h"

#include "bench/model/case.h"
#include "bench/model/context.h"
#include "bench/model/timing.h"

static void fill_times(row *w, const share_case *k, const share_times *m, double one_ms)
{
    const stats step = stats_of(&m->step), compute = stats_of(&m->compute);
    const double exposed = step.median - compute.median, predicted = one_ms / (k->m.tp * k->m.cp) + m->alone;
    double low, high;
    median_difference_interval(&m->step, &m->compute, &low, &high);
    row_real(w, "step_ms", step.median);
    row_real(w, "step_p10_ms", step.p10);
    row_real(w, "step_p90_ms", step.p90);
    row_int(w, "n_steps", (int64_t)step.n);
    row_real(w, "compute_ms", compute.median);
    row_real(w, "exposed_ms", exposed);
    row_real(w, "exposed_lo_ms", low);
    row_real(w, "exposed_hi_ms", high);
    row_real(w, "alone_ms", m->alone);
    row_real(w, "hidden_pct", 100 * (1 - exposed / m->alone));
    row_real(w, "one_ms", one_ms);
    row_real(w, "speedup", one_ms * k->batches / step.median);
    row_real(w, "efficiency_pct", 100 * one_ms * k->batches / step.median / k->ranks);
    row_real(w, "predicted_ms", predicted);
    row_real(w, "err_pct", 100 * (predicted / step.median - 1));
    row_real(w, "loss_first", m->loss_first);
    row_real(w, "loss_last", m->loss_last);
}

static void fill_rates(const share_case *k, double step_ms)
{
    const transformer_shape shape = model_shape(&k->o);
    const double tflops = transformer_step_flops(&shape, FLOPS_CAUSAL) / (k->m.tp * k->m.cp) / (step_ms * 1e9);
    row_real(k->w, "tokens_per_s", k->batches * transformer_tokens(&shape) / (step_ms * 1e-3));
    row_real(k->w, "tflops", tflops);
    row_real(k->w, "mfu_causal_pct", 100 * tflops / model_peak_of(k->s, &k->o));
}

void share_fill_row(share_case *k, const team *x, const share_times *m, double one_ms, int64_t one_bytes)
{
    const model_bench *b = k->s->user;
    row *w = k->w;
    const double peak = launch_most(
        k->l, "peak", x->member ? (double)(trainer_memory_of(x->t).allocated + x->extra_bytes) : 0, k->ranks);
    const double planned = launch_most(
        k->l, "planned",
        x->member ? (double)(trainer_planned_bytes(x->at.d, b->kernels, b->ctx, &x->o) + x->extra_bytes) : 0, k->ranks);
    fill_times(w, k, m, one_ms);
    fill_rates(k, stats_of(&m->step).median);
    row_int(w, "peak_bytes", (int64_t)peak);
    row_int(w, "predicted_bytes", (int64_t)planned);
    row_int(w, "one_bytes", one_bytes);
    row_real(w, "saved_pct", 100 * (1 - peak / (double)one_bytes));
    row_real(w, "device_used_bytes", m->used_bytes);
    row_int(w, "params", model_parameters(&k->o.config));
    row_int(w, "hosts", launch_hosts(k->l));
    if (!x->member)
        return; /* as rank 0 is, which writes the row */
    row_int(w, "rank_params", trainer_params(x->t)->parameters);
    row_int(w, "collectives", x->op_count);
    const double wire = x->wire_bytes + team_data_bytes(x);
    row_real(w, "wire_bytes", wire);
    row_real(w, "wire_gb_s", wire / (m->alone * 1e6));
    row_text(w, "backend", team_backend(x));
}
