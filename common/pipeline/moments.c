/* SPDX-License-Identifier: MIT */
/* What an action waits for, and when that is there; see internal.h. */
#include <math.h>
#include <stdlib.h>

#include "common/core/error.h"
#include "common/pipeline/internal.h"

void pipeline_moments_create(pipeline_moments *m, const pipeline_shape *s, const pipeline_costs *costs)
{
    const size_t n = (size_t)PIPELINE_KINDS * (size_t)pipeline_stages(s) * (size_t)s->micros;
    *m = (pipeline_moments){s, costs, xmalloc(n * sizeof *m->end)};
    for (size_t i = 0; i < n; i++)
        m->end[i] = NAN;
}

void pipeline_moments_free(pipeline_moments *m)
{
    free(m->end);
}

double *pipeline_end(const pipeline_moments *m, pipeline_kind kind, int stage, int micro)
{
    const size_t stages = (size_t)pipeline_stages(m->shape);
    return &m->end[((size_t)kind * stages + (size_t)stage) * (size_t)m->shape->micros + (size_t)micro];
}

/* The later of both; NAN where one is not known. */
static double later(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : fmax(a, b);
}

/* When what a neighbouring stage made is on this rank. */
static double arrives(const pipeline_moments *m, int rank, pipeline_kind kind, int stage, int micro)
{
    return *pipeline_end(m, kind, stage, micro) + (pipeline_rank(m->shape, stage) == rank ? 0 : m->costs->hop);
}

double pipeline_ready(const pipeline_moments *m, int rank, pipeline_action a, double from)
{
    const int stage = pipeline_stage(m->shape, rank, a.chunk);
    if (a.kind == PIPELINE_W)
        return later(from, *pipeline_end(m, PIPELINE_B, stage, a.micro));
    if (a.kind == PIPELINE_F)
        return stage ? later(from, arrives(m, rank, PIPELINE_F, stage - 1, a.micro)) : from;
    const double own = later(from, *pipeline_end(m, PIPELINE_F, stage, a.micro));
    return stage + 1 < pipeline_stages(m->shape) ? later(own, arrives(m, rank, PIPELINE_B, stage + 1, a.micro)) : own;
}

double pipeline_duration(const pipeline_shape *s, const pipeline_costs *c, int rank, pipeline_action a)
{
    const int stage = pipeline_stage(s, rank, a.chunk);
    const bool split = s->schedule->split,
               ends = a.micro == s->micros - 1 && a.kind == (split ? PIPELINE_W : PIPELINE_B);
    const double more = c->last && ends ? c->last[stage] : 0;
    if (a.kind == PIPELINE_B)
        return c->b[stage] + (split ? 0 : c->w[stage]) + more;
    return a.kind == PIPELINE_F ? c->f[stage] : c->w[stage] + more;
}

double pipeline_given(const pipeline_moments *m, int rank, pipeline_action a, double end)
{
    const bool early = a.kind == PIPELINE_B && m->costs->early && !m->shape->schedule->split;
    return end - (early ? m->costs->w[pipeline_stage(m->shape, rank, a.chunk)] : 0);
}
