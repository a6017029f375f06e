/* SPDX-License-Identifier: MIT */
/* Reads a rank of a mesh, and compares it with one rank; see compare.h. */
#include "bench/share/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/error.h"
#include "common/core/numeric.h"

share_bounds share_bounds_of(const step_options *o)
{
    switch (o->precision->compute) {
    case SB_FP32: return o->split ? (share_bounds){1e-4, 2e-3, 2e-2, 2e-4} : (share_bounds){1e-5, 2e-4, 5e-3, 2e-5};
    case SB_TF32: return (share_bounds){3e-4, 1e-2, 2e-2, 1e-3};
    default: return (share_bounds){3e-3, 1e-1, 2.5e-1, 1e-2};
    }
}

float *share_read_trainer(trainer *t, bool grads)
{
    const params *p = trainer_params(t);
    float *out = xcalloc((size_t)p->elements, sizeof *out);
    for (int i = 0; i < p->count; i++)
        (grads ? trainer_read_grad : trainer_read_param)(t, &p->tensors[i], out + p->tensors[i].first);
    return out;
}

float *share_read(team *x, bool grads)
{
    if (!x->member || !x->r->plan)
        return x->member ? share_read_trainer(x->t, grads) : NULL;
    float *out = xcalloc((size_t)trainer_params(x->t)->elements, sizeof *out);
    (grads ? replica_read_grads : replica_read_params)(x->r, out);
    return out;
}

bool *share_summed(const team *x)
{
    if (!x->r->plan || !x->r->plan->sharded)
        return NULL;
    const ownership *own = &x->r->plan->own;
    bool *is = xcalloc((size_t)x->r->plan->elements, sizeof *is);
    for (int i = 0; i < own->n; i++)
        memset(is + own->r[i].first, 1, (size_t)own->r[i].count);
    return is;
}

double share_mean_loss(const team *x)
{
    const double mine = x->member ? trainer_loss(x->t) : NAN;
    OWNED double *all = launch_gathered(x->at.l, "loss", &mine, sizeof mine);
    double sum = 0;
    if (!x->alone && x->member) {
        mesh_group g = mesh_group_of(x->m, x->rank, MESH_DATA);
        for (int i = 0; i < g.count; i++)
            sum += all[g.ranks[i]] / g.count;
        mesh_group_free(&g);
    }
    return x->alone ? mine : sum;
}

void share_round(const team *x, float *params, size_t n)
{
    const bool rounds = trainer_state_of(x->t).param_dtype == SB_BF16;
    for (size_t i = 0; i < n && rounds; i++) {
        uint16_t high;
        int16_t rest;
        float_split(params[i], &high, &rest);
        params[i] = float_join(high, 0);
    }
}

double share_relative(share_distance d)
{
    return d.off == 0 ? 0 : sqrt(d.off / d.size);
}

share_distance share_distance_of(const param_tensor *part, const float *got, const bool *only, const param_tensor *all,
                                 const float *want, const float *from)
{
    share_distance d = {0, 0};
    for (int r = 0; r < part->rows; r++)
        for (int c = 0; c < part->columns; c++) {
            const int row = r + part->row_first;
            const int64_t at = all->first + (int64_t)row * all->columns + c + part->column_first;
            const int64_t here = part->first + (int64_t)r * part->columns + c;
            const double is = got[here];
            if (only && !only[here])
                continue;
            const double x = row < all->rows ? want[at] : 0, zero = row < all->rows && from ? from[at] : 0;
            d.off += (is - x) * (is - x);
            d.size += (x - zero) * (x - zero);
        }
    return d;
}
