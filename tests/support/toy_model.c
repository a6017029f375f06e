/* SPDX-License-Identifier: MIT */
/* See toy_model.h. */
#include "tests/support/toy_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/rng.h"

static int64_t up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

toy_model *toy_create(bool tied, int seed, int64_t granularity, int64_t state_elements)
{
    static const int plain_widths[] = {10, 10, 50, 5}, tied_widths[] = {10, 10, 50, 10, 50, 5};
    static const int plain_tensors[] = {2, 1, 0}, tied_tensors[] = {3, 2, 1, 2, 0};
    toy_model *t = xcalloc(1, sizeof *t);
    t->tied = tied;
    t->layers = tied ? 5 : 3;
    t->tensors = tied ? 4 : 3;
    for (int l = 0; l <= t->layers; l++)
        t->widths[l] = tied ? tied_widths[l] : plain_widths[l];
    for (int l = 0; l < t->layers; l++) {
        t->tensor[l] = tied ? tied_tensors[l] : plain_tensors[l];
        t->counts[t->tensor[l]] = t->widths[l] * t->widths[l + 1];
    }
    for (int i = 0; i < t->tensors; i++)
        t->starts[i + 1] = up(t->starts[i] + t->counts[i], i + 1 < t->tensors ? 64 : granularity);
    t->param = xcalloc((unsigned long)t->starts[t->tensors], sizeof *t->param);
    t->grad = xcalloc((unsigned long)t->starts[t->tensors], sizeof *t->grad);
    t->m = xcalloc((unsigned long)state_elements + 1, sizeof *t->m);
    t->v = xcalloc((unsigned long)state_elements + 1, sizeof *t->v);
    for (int i = 0; i < t->tensors; i++)
        rng_normal(t->param + t->starts[i], (size_t)t->counts[i], (uint64_t)seed, (uint32_t)i, 0, 0.3f);
    for (int i = 0; i < TOY_WIDEST; i++)
        t->bias[i] = 0.01f * (float)(i % 7) - 0.02f;
    t->fixed[0] = t->fixed[1] = 2;
    return t;
}

void toy_free(toy_model *t)
{
    if (!t)
        return;
    free(t->param);
    free(t->grad);
    free(t->m);
    free(t->v);
    free(t);
}

index_space toy_space(const toy_model *t)
{
    return (index_space){.starts = t->starts, .tensors = t->tensors};
}

/* ---- a step ---- */

typedef struct sample {
    float x[TOY_LAYERS + 1][TOY_WIDEST]; /* the input of each layer, and the output */
    float d[TOY_WIDEST];                 /* of the loss, by the output of a layer */
} sample;

static void layer_forward(const toy_model *t, int l, sample *s)
{
    const int in = t->widths[l], out = t->widths[l + 1];
    const float *w = t->param + t->starts[t->tensor[l]];
    for (int o = 0; o < out; o++) {
        float sum = !t->tied && l == 1 ? t->bias[o] : 0;
        for (int i = 0; i < in; i++)
            sum += w[o * in + i] * s->x[l][i];
        s->x[l + 1][o] = l + 1 < t->layers && sum < 0 ? 0 : sum;
    }
}

static void loss_backward(const toy_model *t, int number, sample *s)
{
    float target[TOY_OUT];
    rng_normal(target, TOY_OUT, 77, 1, (uint64_t)number * TOY_OUT, 1);
    for (int o = 0; o < TOY_OUT; o++)
        s->d[o] = 2 * (s->x[t->layers][o] - target[o]) / (TOY_SAMPLES * TOY_OUT);
}

static void layer_backward(const toy_model *t, int l, sample *s)
{
    const int in = t->widths[l], out = t->widths[l + 1];
    const float *w = t->param + t->starts[t->tensor[l]];
    float *dw = t->grad + t->starts[t->tensor[l]], dx[TOY_WIDEST] = {0};
    for (int o = 0; o < out; o++) {
        if (l + 1 < t->layers && s->x[l + 1][o] <= 0)
            continue;
        for (int i = 0; i < in; i++) {
            dw[o * in + i] += s->d[o] * s->x[l][i];
            dx[i] += s->d[o] * w[o * in + i];
        }
    }
    memcpy(s->d, dx, sizeof dx);
}

/* A tied matrix gets its gradient from two layers and is ready after the first of them. */
static bool last_use(const toy_model *t, int l)
{
    for (int before = 0; before < l; before++)
        if (t->tensor[before] == t->tensor[l])
            return false;
    return true;
}

void toy_step(toy_model *t, int first, int end, const toy_hooks *hooks)
{
    OWNED sample *samples = xcalloc(TOY_SAMPLES, sizeof *samples);
    for (int n = first; n < end; n++)
        rng_normal(samples[n].x[0], TOY_IN, 77, 0, (uint64_t)n * TOY_IN, 1);
    for (int l = 0; l < t->layers; l++) {
        if (hooks && hooks->need)
            hooks->need(hooks->user, t->starts[t->tensor[l]], t->counts[t->tensor[l]]);
        for (int n = first; n < end; n++)
            layer_forward(t, l, &samples[n]);
    }
    memset(t->grad, 0, (size_t)t->starts[t->tensors] * sizeof *t->grad);
    for (int n = first; n < end; n++)
        loss_backward(t, n, &samples[n]);
    for (int l = t->layers - 1; l >= 0; l--) {
        for (int n = first; n < end; n++)
            layer_backward(t, l, &samples[n]);
        if (last_use(t, l) && hooks && hooks->ready)
            hooks->ready(hooks->user, t->starts[t->tensor[l]], t->counts[t->tensor[l]]);
    }
}

/* ---- updates ---- */

void toy_sgd(toy_model *t, int64_t first, int64_t count)
{
    for (int64_t i = first; i < first + count; i++)
        t->param[i] -= 0.1f * t->grad[i];
}

void toy_adamw(toy_model *t, int64_t first, int64_t count, int64_t state_first)
{
    const float correction1 = 1 - powf(0.9f, (float)t->steps), correction2 = sqrtf(1 - powf(0.999f, (float)t->steps));
    for (int64_t k = 0; k < count; k++) {
        float *p = &t->param[first + k], *m = &t->m[state_first + k], *v = &t->v[state_first + k];
        const float g = t->grad[first + k];
        *p -= 0.1f * 0.1f * *p;
        *m = 0.9f * *m + 0.1f * g;
        *v = 0.999f * *v + 0.001f * g * g;
        *p -= 0.1f * (*m / correction1) / (sqrtf(*v) / correction2 + 1e-8f);
    }
}
