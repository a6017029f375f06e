/* SPDX-License-Identifier: MIT */
/* Rates that were measured at some places, and what lies between them. A place is three numbers above 0, such as m, n and k of a
 * product. Far is what differs by a factor: a point at `d` powers of e weighs 1 / d^4 against the others, and one at the place itself
 * is all that counts. */
#pragma once

#include <stdbool.h>

typedef struct mesh_point {
    double at[3], value; /* logarithms of the place */
} mesh_point;
typedef struct mesh_points {
    int count, room;
    mesh_point *list;
} mesh_points;

/* A value at a place that has one already replaces it. Values that are no number above 0 are left out. */
void mesh_points_add(mesh_points *p, double x, double y, double z, double value);
double mesh_points_at(const mesh_points *p, double x, double y, double z); /* `p` NULL or empty: NAN */
double mesh_points_nearest_y(const mesh_points *p, double y); /* the y of a point; NAN where there is none */
bool mesh_points_has(const mesh_points *p, double x, double y, double z); /* that very place */
void mesh_points_free(mesh_points *p);
