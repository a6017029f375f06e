/* SPDX-License-Identifier: MIT */
/* The z-score of a value over a window; see outliers.h. */
#include "common/run/outliers.h"

#include <math.h>

static const double most = 5;

bool outliers_add(outliers *o, double x, double *z)
{
    const int held = o->n < OUTLIERS_WINDOW ? o->n : OUTLIERS_WINDOW;
    double mean = 0, squares = 0;
    for (int i = 0; i < held; i++)
        mean += o->last[i] / held;
    for (int i = 0; i < held; i++)
        squares += (o->last[i] - mean) * (o->last[i] - mean);
    *z = held < OUTLIERS_LEAST ? NAN : x == mean ? 0 : (x - mean) / sqrt(squares / held);
    const bool out = !isfinite(x) || fabs(*z) > most;
    if (!out)
        o->last[o->n++ % OUTLIERS_WINDOW] = x;
    return out;
}
