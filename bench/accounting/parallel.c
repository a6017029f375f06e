/* SPDX-License-Identifier: MIT */
/* Data parallelism on GPUs: the tokens that hide the all-reduce of the gradients, the best bucket, and memory and
 * traffic of DDP, ZeRO and FSDP. */
#include "bench/accounting/questions.h"

#include <math.h>
#include <string.h>

static const double mb = 1e6, gib = 1073741824.0;

static accounting_model model_of(const accounting *a)
{
    accounting_model m;
    accounting_model_parse(case_text(a->c, "model"), &m); /* checked when the options were read */
    row_real(a->w, "parameters", m.parameters);
    accounting_step(a, "%s: P = %W parameters", case_text(a->c, "model"), m.parameters);
    return m;
}

static double ranks_of(const accounting *a)
{
    return (double)case_int(a->c, "ranks");
}

/* ---- how many tokens hide the gradients? ---- */

void accounting_run_data_parallel(const accounting *a)
{
    accounting_rates r;
    if (!accounting_rates_of(a, "gpu-flops", "busbw", &r))
        return;
    const accounting_model model = model_of(a);
    const double n = ranks_of(a), grad = (double)case_int(a->c, "grad-bits") / 8, p = model.parameters;
    const double tokens = data_parallel_tokens(p, model.matmul_parameters, grad, n, r.flops, r.bandwidth);
    const double comm_s = p * grad / all_reduce_rate(r.bandwidth, n);
    accounting_step(a, "of these multiply each token: N_mm = %W", model.matmul_parameters);
    accounting_step(a, "C = %P FLOP/s, W = %R of the bus, alpha = C / W = %.0f FLOP/B", r.flops, r.bandwidth,
                    r.flops / r.bandwidth);
    accounting_step(a, "gradients: %P B x P = %B; their all-reduce sends 2 (n - 1) / n of it: %T", grad, grad * p,
                    comm_s);
    accounting_step(a, "backward of T tokens: 4 N_mm T / C, attention not counted");
    accounting_step(a, "equal at T = alpha P / N_mm x %P/2 x (n - 1)/n", grad);
    accounting_real(a, "wire_bytes", 2 * (n - 1) / n * grad * p);
    accounting_real(a, "comm_us", 1e6 * comm_s);
    accounting_real(a, "tokens_per_device", tokens);
    accounting_answer(a, "%.0f tokens per GPU hide the gradients of %s on %P ranks", tokens, case_text(a->c, "model"),
                      n);
}

/* ---- buckets ---- */

static void best_steps(const accounting *a, const bucket_model *m)
{
    accounting_step(a,
                    "the handout's: T(n) = n o + s / (n w), least where n = sqrt(s / (o w)) = %.2f (whole: %.0f), b = "
                    "sqrt(s o w) = %.1f MB, T = 2 sqrt(s o / w) = %T",
                    bucket_best_count(m, false), bucket_best_count(m, true), bucket_best(m) / mb,
                    bucket_overhead(m, bucket_best(m)));
    accounting_step(
        a, "contention: T(b) = o + b/w + kappa (n o + s/w), kappa = %P: b = sqrt(kappa s o w) = %.1f MB, T = %T",
        m->kappa, bucket_best_contention(m) / mb, bucket_overhead_contention(m, bucket_best_contention(m)));
    if (m->ready_rate < m->rate)
        accounting_step(a, "gradients come at g = %R < w: a queue stays short from b = o g w / (w - g) = %.1f MB on",
                        m->ready_rate, bucket_best_fifo(m) / mb);
    else
        accounting_step(a, "gradients come at g = %R >= w: a queue grows whatever b is", m->ready_rate);
}

static void bucket_row(const accounting *a, const bucket_model *m, double bucket)
{
    const double plain = bucket_overhead(m, bucket), queue = bucket_overhead_fifo(m, bucket);
    const double contention = bucket_overhead_contention(m, bucket);
    accounting_real(a, "bucket_used_bytes", bucket);
    accounting_real(a, "overhead_us", 1e6 * plain);
    accounting_real(a, "overhead_contention_us", 1e6 * contention);
    accounting_step(a, "b = %B, n = %.1f: the handout's %T; queue %T; contention %T", bucket, bucket_count(m, bucket),
                    plain, queue, contention);
    accounting_answer(a, "b = %.1f MB: %T; handout's %T; b* = %.0f and %.0f MB", bucket / mb, contention, plain,
                      bucket_best_contention(m) / mb, bucket_best(m) / mb);
}

void accounting_run_buckets(const accounting *a)
{
    accounting_rates r;
    const double n = ranks_of(a), kappa = case_real(a->c, "kappa"), g = case_real(a->c, "grad-rate");
    if (n < 2) {
        row_status_set(a->w, ROW_SKIP, "one rank reduces nothing");
        return;
    }
    if (!accounting_rates_of(a, NULL, "busbw", &r))
        return;
    const accounting_model model = model_of(a);
    const double grad = (double)case_int(a->c, "grad-bits") / 8, w = all_reduce_rate(r.bandwidth, n);
    const bucket_model m = {.bytes = grad * model.parameters,
                            .rate = w,
                            .overhead_s = 1e-6 * case_real(a->c, "overhead"),
                            .ready_rate = g > 0 ? g : w,
                            .kappa = kappa};
    accounting_step(a, "s = %P B x P = %B", grad, m.bytes);
    accounting_step(a, "w = W n / (2 (n - 1)) = %R x %P / %P = %R", r.bandwidth, n, 2 * (n - 1), w);
    accounting_step(a, "o = %P us per bucket", 1e6 * m.overhead_s);
    best_steps(a, &m);
    accounting_real(a, "algbw_gb_s", w / 1e9);
    accounting_real(a, "best_bytes", bucket_best(&m));
    accounting_real(a, "best_contention_bytes", bucket_best_contention(&m));
    accounting_real(a, "best_buckets", bucket_best_count(&m, false));
    const double asked = (double)case_int(a->c, "bucket"), best = bucket_best_contention(&m);
    bucket_row(a, &m, fmin(asked > 0 ? asked : best, m.bytes));
}

/* ---- memory and traffic by strategy ---- */

static const struct {
    const char *name, *wire;
} stages[] = {[ZERO_DDP] = {"ddp", "all-reduce of gradients: 2 P (n - 1)/n"},
              [ZERO_1_BROADCAST] = {"zero1-broadcast", "all-reduce, then each owner broadcasts: 3 P (n - 1)/n"},
              [ZERO_1] = {"zero1", "reduce-scatter and all-gather: 2 P (n - 1)/n"},
              [ZERO_2] = {"zero2", "reduce-scatter and all-gather: 2 P (n - 1)/n"},
              [ZERO_3] = {"zero3", "two all-gathers and a reduce-scatter: 3 P (n - 1)/n"}};

/* "2 P + 12 P/n" of what is held after a step. */
static void held_step(const accounting *a, zero_stage stage, zero_recipe r)
{
    const double p = stage == ZERO_3 ? 0 : r.param, g = stage >= ZERO_2 ? 0 : r.grad,
                 k = stage == ZERO_DDP ? r.state : 0;
    const double whole = p + g + k, shard = r.param + r.grad + r.state - whole;
    accounting_step(a, "p = %P B, g = %P B, k = %P B per parameter; held after a step: %P P + %P P/n", r.param, r.grad,
                    r.state, whole, shard);
}

void accounting_run_zero(const accounting *a)
{
    accounting_rates rates;
    const accounting_model model = model_of(a);
    if (!accounting_rates_of(a, NULL, "busbw", &rates))
        return;
    const zero_recipe r = zero_recipe_of(case_text(a->c, "recipe"));
    const double n = ranks_of(a), p = model.parameters, slots = (double)case_int(a->c, "slots");
    zero_stage stage = ZERO_DDP;
    while (strcmp(stages[stage].name, case_text(a->c, "strategy")) != 0)
        stage++;
    const zero_bytes b = zero_memory(stage, r, p, n, slots, model.unit_parameters);
    const zero_wire wire = zero_wire_elements(stage, p, n);
    const double wire_bytes = r.grad * wire.grads + r.param * wire.params, wire_s = wire_bytes / rates.bandwidth;
    held_step(a, stage, r);
    accounting_step(a, "after init:  %B", b.init);
    accounting_step(a, "before step: %B, with gradients", b.before_step);
    accounting_step(a, "after step:  %B, with moments", b.after_step);
    if (b.slots > 0)
        accounting_step(a, "beside it in forward and backward: activations, and %P slots of a block: %B", slots,
                        b.slots);
    accounting_step(a, "%s = %W elements, %B, %T at %R", stages[stage].wire, wire.grads + wire.params, wire_bytes,
                    wire_s, rates.bandwidth);
    accounting_real(a, "init_bytes", b.init);
    accounting_real(a, "before_step_bytes", b.before_step);
    accounting_real(a, "after_step_bytes", b.after_step);
    accounting_real(a, "slots_bytes", b.slots);
    accounting_real(a, "wire_bytes", wire_bytes);
    accounting_real(a, "comm_us", 1e6 * wire_s);
    accounting_answer(a, "init %.2f, before step %.2f, after %.2f GiB; sends %.2f GB", b.init / gib,
                      b.before_step / gib, b.after_step / gib, wire_bytes / 1e9);
}
