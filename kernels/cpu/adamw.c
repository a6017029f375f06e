/* SPDX-License-Identifier: MIT */
/* AdamW in fp32, in the order of operations of torch.optim.AdamW, and what has to be known before its first range: the
 * corrections of this step, the factor of the gradients, the loss scale of the next. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train.h"
#include "kernels/shared/stochastic.h"
#include "kernels/shared/train_check.h"

#include "common/core/numeric.h"

#include <math.h>

static const float smallest_scale = 0x1p-14f, largest_scale = 0x1p24f, clip_epsilon = 1e-6f;

static void skip_step(const sb_optimizer_begin *p)
{
    sb_optimizer_state *s = p->state;
    s->skip = 1;
    s->skipped++;
    s->good_steps = 0;
    if (p->dynamic_scale)
        s->loss_scale = fmaxf(s->loss_scale / 2, smallest_scale);
}

static void take_step(const sb_optimizer_begin *p)
{
    sb_optimizer_state *s = p->state;
    s->skip = 0;
    s->step++;
    if (p->rates)
        s->lr = p->rates[s->step < p->updates ? s->step - 1 : p->updates - 1];
    if (p->norms && s->step <= p->updates)
        p->norms[s->step - 1] = s->grad_norm;
    s->correction1 = (float)(1 - pow(p->beta1, (double)s->step));
    s->correction2 = (float)sqrt(1 - pow(p->beta2, (double)s->step));
    s->grad_factor = 1 / s->loss_scale;
    if (p->clip_norm > 0 && s->grad_norm > p->clip_norm)
        s->grad_factor *= p->clip_norm / (s->grad_norm + clip_epsilon);
    s->good_steps++;
    /* The gradients of this step were made with the old scale, which has been copied to grad_scale. */
    if (p->dynamic_scale && s->good_steps >= p->growth_interval) {
        s->loss_scale = fminf(s->loss_scale * 2, largest_scale);
        s->good_steps = 0;
    }
}

sb_status cpu_optimizer_begin(sb_context *ctx, const sb_optimizer_begin *p, void *stream)
{
    (void)ctx, (void)stream;
    SB_TRY(sb_optimizer_begin_check(p));
    p->state->grad_scale = p->state->loss_scale;
    if (p->state->found_nonfinite)
        skip_step(p);
    else
        take_step(p);
    p->state->found_nonfinite = 0;
    return SB_OK;
}

static void read_params(const sb_adamw *p, size_t first, int n, float *out)
{
    const uint16_t *bf16 = p->param;
    const int16_t *remainder = p->master;
    switch (p->master_kind) {
    case SB_MASTER_NONE: cpu_read(p->dtype_param, out, p->param, first, n); return;
    case SB_MASTER_FP32: cpu_read(SB_FP32, out, p->master, first, n); return;
    case SB_MASTER_SPLIT:
        for (int i = 0; i < n; i++)
            out[i] = float_join(bf16[first + i], remainder[first + i]);
    }
}

static void write_params(const sb_adamw *p, size_t first, int n, const float *in)
{
    uint16_t *bf16 = p->param;
    int16_t *remainder = p->master;
    switch (p->master_kind) {
    case SB_MASTER_SPLIT:
        for (int i = 0; i < n; i++)
            float_split(in[i], &bf16[first + i], &remainder[first + i]);
        return;
    case SB_MASTER_FP32: cpu_write(SB_FP32, p->master, first, in, n); /* fall through */
    case SB_MASTER_NONE: cpu_write(p->dtype_param, p->param, first, in, n);
    }
}

/* Scalars are computed in double and rounded once, as where Python holds them. */
static void update(const sb_adamw *p, int n, float *param, const float *grad, float *m, float *v)
{
    const sb_optimizer_state s = *p->state; /* not in the loops' way: they become vector instructions */
    const float decay = (float)(1 - s.lr * p->weight_decay), step_size = (float)((double)s.lr / s.correction1);
    const float beta2 = (float)p->beta2, new1 = (float)(1 - p->beta1), new2 = (float)(1 - p->beta2);
    const float eps = (float)p->eps;
    for (int i = 0; i < n; i++) {
        const float g = grad[i] * s.grad_factor;
        if (p->stochastic) { /* fused as on a GPU, so that m and v have its bits */
            m[i] = fmaf(new1, g - m[i], m[i]);
            v[i] = fmaf(v[i], beta2, new2 * g * g);
        } else {
            m[i] += new1 * (g - m[i]);
            v[i] = v[i] * beta2 + new2 * g * g;
        }
    }
    for (int i = 0; i < n; i++) {
        param[i] *= decay;
        param[i] -= step_size * (m[i] / (sqrtf(v[i]) / s.correction2 + eps));
    }
}

static void write_stochastic(const sb_adamw *p, size_t first, int n, const float *v)
{
    const uint32_t key = sb_chance_key(p->state->step);
    uint16_t *out = (uint16_t *)p->v + first;
    for (int i = 0; i < n; i++) {
        const uint64_t index = p->first + first + (uint64_t)i;
        const sb_chances c = sb_chances_of(index / SB_STOCHASTIC_GROUP, key);
        const int place = (int)(index % SB_STOCHASTIC_GROUP);
        out[i] = (uint16_t)sb_round_stochastic(float_bits(v[i]), c.word[place / 2] >> 16 * (place % 2));
    }
}

sb_status cpu_adamw(sb_context *ctx, const sb_adamw *p, void *stream)
{
    (void)ctx, (void)stream;
    sb_status s = sb_adamw_check(p);
    if (s != SB_OK || p->state->skip)
        return s;
    int n;
    for (size_t first = 0; first < p->n; first += n) {
        float param[CPU_BLOCK], grad[CPU_BLOCK], m[CPU_BLOCK], v[CPU_BLOCK];
        n = cpu_block(first, p->n);
        read_params(p, first, n, param);
        cpu_read(p->dtype_grad, grad, p->grad, first, n);
        cpu_read(p->dtype_moments, m, p->m, first, n);
        cpu_read(p->dtype_moments, v, p->v, first, n);
        update(p, n, param, grad, m, v);
        cpu_write(p->dtype_moments, p->m, first, m, n);
        if (p->stochastic)
            write_stochastic(p, first, n, v);
        else
            cpu_write(p->dtype_moments, p->v, first, v, n);
        write_params(p, first, n, param);
    }
    return SB_OK;
}
