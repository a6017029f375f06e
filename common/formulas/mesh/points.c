/* SPDX-License-Identifier: MIT */
/* Inverse distances; see points.h. */
#include "common/formulas/mesh/points.h"

#include <math.h>
#include <stdlib.h>

#include "common/core/error.h"

static double square_distance(const mesh_point *a, const mesh_point *b)
{
    double sum = 0;
    for (int i = 0; i < 3; i++)
        sum += (a->at[i] - b->at[i]) * (a->at[i] - b->at[i]);
    return sum;
}

/* Its place in the list, or the count. */
static int find(const mesh_points *p, const mesh_point *point)
{
    int at = 0;
    while (at < p->count && square_distance(&p->list[at], point) > 1e-12)
        at++;
    return at;
}

void mesh_points_add(mesh_points *p, double x, double y, double z, double value)
{
    const mesh_point point = {{log(x), log(y), log(z)}, value};
    if (!(value > 0) || !isfinite(log(x) + log(y) + log(z)))
        return;
    const int at = find(p, &point);
    if (at < p->count)
        p->list[at] = point;
    else
        LIST_ADD(p->list, p->count, p->room, point);
}

bool mesh_points_has(const mesh_points *p, double x, double y, double z)
{
    return find(p, &(mesh_point){.at = {log(x), log(y), log(z)}}) < p->count;
}

double mesh_points_at(const mesh_points *p, double x, double y, double z)
{
    const mesh_point place = {.at = {log(x), log(y), log(z)}};
    double weights = 0, sum = 0;
    for (int i = 0; p && i < p->count; i++) {
        const double d = square_distance(&p->list[i], &place), weight = 1 / (d * d + 1e-12);
        weights += weight;
        sum += weight * p->list[i].value;
    }
    return sum / weights;
}

double mesh_points_nearest_y(const mesh_points *p, double y)
{
    double nearest = NAN;
    for (int i = 0; i < p->count; i++) {
        const double at = p->list[i].at[1];
        if (!(fabs(at - log(y)) >= fabs(nearest - log(y))))
            nearest = at;
    }
    return exp(nearest);
}

void mesh_points_free(mesh_points *p)
{
    free(p->list);
    *p = (mesh_points){0};
}
