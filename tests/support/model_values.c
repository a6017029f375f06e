/* SPDX-License-Identifier: MIT */
/* See model_values.h. */
#include "tests/support/model_values.h"

#include "common/core/error.h"
#include "common/core/rng.h"

#include <math.h>
#include <stdlib.h>

static float *gather(trainer *t, void (*read)(trainer *, const param_tensor *, float *))
{
    const params *p = trainer_params(t);
    float *all = xmalloc((size_t)p->parameters * sizeof *all), *next = all;
    for (int i = 0; i < p->count; next += p->tensors[i++].count)
        read(t, &p->tensors[i], next);
    return all;
}

float *all_params(trainer *t)
{
    return gather(t, trainer_read_param);
}

float *all_grads(trainer *t)
{
    return gather(t, trainer_read_grad);
}

void draw_tokens(trainer *t, uint64_t seed, uint32_t stream)
{
    const step_options *o = trainer_options_of(t);
    const int n = o->batch * o->seq * (o->micro_batches > 1 ? o->micro_batches : 1);
    OWNED int32_t *ids = xmalloc(2 * (size_t)n * sizeof *ids);
    for (int i = 0; i < 2 * n; i++)
        ids[i] = (int32_t)(rng_uniform(seed, stream, (uint64_t)i) * o->config.vocab);
    trainer_set_tokens(t, ids, ids + n);
}

double relative_l2(const float *reference, const float *got, int64_t n)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)got[i] - reference[i];
        difference += d * d;
        norm += (double)reference[i] * reference[i];
    }
    return difference == 0 ? 0 : sqrt(difference / norm);
}

double worst_tensor(const params *p, const float *reference, const float *got, int *which)
{
    double worst = 0;
    int64_t at = 0;
    for (int i = 0; i < p->count; at += p->tensors[i++].count) {
        const double error = relative_l2(reference + at, got + at, p->tensors[i].count);
        if (!(error <= worst)) {
            worst = error;
            if (which)
                *which = i;
            if (isnan(error))
                break;
        }
    }
    return worst;
}
