/* SPDX-License-Identifier: MIT */
/* Closed forms of memory and communication; see accounting.h. */
#include "common/formulas/accounting.h"

#include <math.h>
#include <string.h>

/* ---- memory of a stack of feed-forward blocks ---- */

int64_t ffn_parameters(const ffn_stack *s)
{
    return s->blocks * s->matrices * s->d_model * s->d_ff;
}

int64_t ffn_saved_per_token(const ffn_stack *s)
{
    int64_t hidden = s->matrices == 3 ? 3 * s->d_ff : s->d_ff;
    return ACCOUNTING_ACTIVATION_BYTES * s->blocks * (s->d_model + hidden);
}

static double state_bytes(const ffn_stack *s)
{
    return ACCOUNTING_STATE_BYTES * (double)ffn_parameters(s);
}

static double half_of_saved(const ffn_stack *s)
{
    return (double)ffn_saved_per_token(s) / 2;
}

double fsdp_device_bytes(const ffn_stack *s, double devices, double tokens)
{
    return state_bytes(s) / devices + half_of_saved(s) * tokens * (1 + 1 / devices);
}

double fsdp_devices(const ffn_stack *s, double device_bytes, double tokens, double *exact)
{
    double half = half_of_saved(s) * tokens, room = device_bytes - half;
    double equal = room > 0 ? (state_bytes(s) + half) / room : INFINITY;
    if (exact)
        *exact = equal;
    return isfinite(equal) ? floor(equal) + 1 : INFINITY;
}

double fsdp_tokens_most(const ffn_stack *s, double device_bytes)
{
    return ceil(device_bytes / half_of_saved(s)) - 1;
}

/* ---- when does a block compute longer than it communicates? ---- */

double mesh_intensity(const ffn_mesh *m)
{
    return m->flops / m->bandwidth;
}

/* The share of its bytes that an axis of k devices sends. */
static double share_sent(double k, bool ring)
{
    return k <= 1 ? 0 : ring ? (k - 1) / k : 1;
}

mesh_times mesh_forward(const ffn_stack *s, const ffn_mesh *m, double tokens, mesh_rules r)
{
    double d = (double)s->d_model, weights = (double)s->matrices * d * (double)s->d_ff;
    return (mesh_times){
        .math = 2 * weights * tokens / (m->x * m->y * m->flops),
        .fsdp = weights * m->weight_bytes * share_sent(m->x, r.rings) / (m->y * m->bandwidth * m->mesh_x),
        .tp = 2 * tokens * d * m->activation_bytes * share_sent(m->y, r.rings) / (m->x * m->bandwidth * m->mesh_y)};
}

double mesh_communication(mesh_times t, mesh_rules r)
{
    return r.at_once ? fmax(t.fsdp, t.tp) : t.fsdp + t.tp;
}

double mesh_tokens(const ffn_stack *s, const ffn_mesh *m, mesh_rules r)
{
    mesh_times one = mesh_forward(s, m, 1, r); /* math and tp grow with B, fsdp does not */
    double left = r.at_once ? one.math : one.math - one.tp;
    return one.tp < one.math ? one.fsdp / left : INFINITY;
}

mesh_split mesh_best_split(const ffn_stack *s, const ffn_mesh *m)
{
    /* In units of 2 m d / W: B F / (N alpha) against F X weights / (N M_X) + (2 / m) B activations / (X M_Y), with
     * weights and activations in units of two bytes. The sum is least where both terms are equal. */
    double f = (double)s->d_ff, n = m->x * m->y, alpha = mesh_intensity(m);
    double weights = m->weight_bytes / 2, activations = m->activation_bytes / (double)s->matrices;
    double tokens = 4 * alpha * alpha * weights * activations / (m->mesh_x * m->mesh_y * f);
    double x = sqrt(activations * tokens * n * m->mesh_x * n / (weights * f * m->mesh_y));
    return (mesh_split){.x = x, .y = n / x, .tokens_per_device = tokens};
}

static mesh_split better_split(const ffn_stack *s, const ffn_mesh *m, mesh_split best, double x)
{
    ffn_mesh other = *m;
    other.x = x;
    other.y = m->x * m->y / x;
    double tokens = mesh_tokens(s, &other, (mesh_rules){false, false}) / (m->x * m->y);
    return tokens < best.tokens_per_device ? (mesh_split){x, other.y, tokens} : best;
}

mesh_split mesh_best_whole_split(const ffn_stack *s, const ffn_mesh *m)
{
    double n = m->x * m->y;
    mesh_split best = {.tokens_per_device = INFINITY};
    for (double k = 1; k * k <= n; k++)
        if (fmod(n, k) == 0) /* k and n / k divide n */
            best = better_split(s, m, better_split(s, m, best, k), n / k);
    return best;
}

double mesh_pure_fsdp(const ffn_mesh *m, double axes)
{
    return mesh_intensity(m) * m->weight_bytes / (2 * axes);
}

/* ---- the forms of 2026 ---- */

double all_reduce_alternate_s(double bytes, double n, double bandwidth)
{
    return (n - 1) * bytes / bandwidth;
}

double all_reduce_s(double bytes, double n, double bandwidth)
{
    return 2 * (n - 1) / n * bytes / bandwidth;
}

/* One axis of n devices: passes over weights (forward 1, backward 2), all-gathers or reduce-scatters of all weights. */
static closed_answer over_data(const ffn_stack *s, const ffn_mesh *m, double n, double tokens, double passes,
                               double transfers)
{
    double df = (double)s->d_model * (double)s->d_ff, rho = m->bandwidth / m->flops;
    closed_answer a = {.tokens = (n - 1) / rho * transfers / passes};
    double b = tokens > 0 ? tokens : a.tokens;
    a.math_s = passes * 6 * b * df / (n * m->flops);
    a.comm_s = transfers * 6 * df * (n - 1) / (n * m->bandwidth);
    a.devices = 1 + b * rho * passes / transfers;
    return a;
}

/* All-reduce of (B, d) in bf16, once in forward (of the output) and once in backward (of the input's gradient). */
static closed_answer over_tensor(const ffn_stack *s, const ffn_mesh *m, double n, double tokens, double passes)
{
    double d = (double)s->d_model, f = (double)s->d_ff, rho = m->bandwidth / m->flops;
    closed_answer a = {.devices = 1 + 1.5 * passes * f * rho};
    a.tokens = n <= a.devices ? 0 : INFINITY;
    a.math_s = passes * 6 * tokens * d * f / (n * m->flops);
    a.comm_s = all_reduce_s(2 * tokens * d, n, m->bandwidth);
    return a;
}

static closed_answer over_both(const ffn_stack *s, const ffn_mesh *m, double tokens, bool at_once)
{
    double d = (double)s->d_model, f = (double)s->d_ff, rho = m->bandwidth / m->flops, n = m->x * m->y;
    closed_answer a;
    double left = at_once ? rho : rho - 2 * (m->y - 1) / (3 * f);
    bool possible = m->y - 1 <= 1.5 * f * rho && left > 0;
    a.tokens = possible ? (m->x - 1) / left : INFINITY;
    double b = tokens > 0 ? tokens : a.tokens;
    double fsdp = 6 * d * f * (m->x - 1) / (n * m->bandwidth), tp = 4 * b * d * (m->y - 1) / (n * m->bandwidth);
    a.math_s = 6 * b * d * f / (n * m->flops);
    a.comm_s = at_once ? fmax(fsdp, tp) : fsdp + tp;
    if (at_once) {
        a.devices_x = 1 + b * rho;
        a.devices_y = 1 + 1.5 * f * rho;
    } else { /* 6 F (X - 1) + 4 B (Y - 1) <= 6 B F rho: X Y is most where 6 F X = 4 B Y */
        double sum = b * rho / 2 + 0.5 + b / (3 * f);
        a.devices_x = sum;
        a.devices_y = 3 * f / (2 * b) * sum;
    }
    a.devices = a.devices_x * a.devices_y;
    return a;
}

closed_answer closed_form_of(closed_form form, const ffn_stack *s, const ffn_mesh *m, double tokens)
{
    double n = m->x * m->y, gradients = 6 * (double)s->d_model * (double)s->d_ff;
    switch (form) {
    case FORM_DATA: return over_data(s, m, n, tokens, 2, 2); /* an all-reduce is a reduce-scatter and a gather */
    case FORM_FSDP_FORWARD: return over_data(s, m, n, tokens, 1, 1);
    case FORM_FSDP_BACKWARD: return over_data(s, m, n, tokens, 2, 2); /* weights gathered, gradients scattered */
    case FORM_TENSOR_FORWARD: return over_tensor(s, m, n, tokens, 1);
    case FORM_TENSOR_BACKWARD: return over_tensor(s, m, n, tokens, 2);
    case FORM_2D_AT_ONCE: return over_both(s, m, tokens, true);
    case FORM_2D_IN_TURN: return over_both(s, m, tokens, false);
    default: return (closed_answer){NAN, all_reduce_s(gradients, n, m->bandwidth), NAN, NAN, NAN, NAN};
    }
}

/* ---- data parallelism of GPUs ---- */

double all_reduce_rate(double bandwidth, double ranks)
{
    return ranks > 1 ? bandwidth * ranks / (2 * (ranks - 1)) : INFINITY;
}

double data_parallel_tokens(double parameters, double matmul_parameters, double grad_bytes, double ranks, double flops,
                            double bandwidth)
{
    double comm_s = parameters * grad_bytes / all_reduce_rate(bandwidth, ranks);
    return comm_s * flops / (4 * matmul_parameters);
}

double bucket_count(const bucket_model *m, double bucket)
{
    return m->bytes / bucket;
}

double bucket_overhead(const bucket_model *m, double bucket)
{
    return bucket_count(m, bucket) * m->overhead_s + bucket / m->rate;
}

double bucket_best(const bucket_model *m)
{
    return sqrt(m->bytes * m->overhead_s * m->rate);
}

double bucket_best_count(const bucket_model *m, bool whole)
{
    double best = m->bytes / bucket_best(m), low = fmax(1, floor(best));
    if (!whole)
        return best;
    return bucket_overhead(m, m->bytes / low) <= bucket_overhead(m, m->bytes / (low + 1)) ? low : low + 1;
}

double bucket_overhead_fifo(const bucket_model *m, double bucket)
{
    double t = m->overhead_s + bucket / m->rate, c = bucket / m->ready_rate;
    return t + (bucket_count(m, bucket) - 1) * fmax(0, t - c);
}

double bucket_best_fifo(const bucket_model *m)
{
    double g = m->ready_rate, w = m->rate;
    return g < w ? m->overhead_s * g / (1 - g / w) : INFINITY;
}

double bucket_overhead_contention(const bucket_model *m, double bucket)
{
    double busy = bucket_count(m, bucket) * m->overhead_s + m->bytes / m->rate;
    return m->overhead_s + bucket / m->rate + m->kappa * busy;
}

double bucket_best_contention(const bucket_model *m)
{
    return sqrt(m->kappa) * bucket_best(m);
}

/* ---- memory and traffic by strategy ---- */

zero_recipe zero_recipe_of(const char *name)
{
    if (strcmp(name, "fp32") == 0)
        return (zero_recipe){.param = 4, .grad = 4, .state = 8, .master = 0};
    return (zero_recipe){.param = 2, .grad = strcmp(name, "bf16") == 0 ? 2 : 4, .state = 12, .master = 4};
}

zero_bytes zero_memory(zero_stage stage, zero_recipe r, double parameters, double ranks, double slots,
                       double unit_parameters)
{
    double params = stage == ZERO_3 ? parameters / ranks : parameters;
    double grads = stage >= ZERO_2 ? parameters / ranks : parameters;
    double states = stage == ZERO_DDP ? parameters : parameters / ranks;
    double unit = (stage == ZERO_3 ? r.param : 0) + (stage >= ZERO_2 ? r.grad : 0);
    zero_bytes b = {.init = r.param * params + r.master * states,
                    .after_step = r.param * params + r.grad * grads + r.state * states,
                    .slots = ranks > 1 ? slots * unit * unit_parameters : 0};
    b.before_step = b.init + r.grad * grads;
    return b;
}

zero_wire zero_wire_elements(zero_stage stage, double parameters, double ranks)
{
    double once = parameters * (ranks - 1) / ranks; /* a reduce-scatter or an all-gather */
    switch (stage) {
    case ZERO_DDP: return (zero_wire){2 * once, 0};
    case ZERO_1_BROADCAST: return (zero_wire){2 * once, once};
    case ZERO_3: return (zero_wire){once, 2 * once};
    default: return (zero_wire){once, once};
    }
}
