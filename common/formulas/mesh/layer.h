/* SPDX-License-Identifier: MIT */
/* A micro-batch's time in a block and in the head, on one rank of a mesh; see mesh.h. */
#pragma once

#include "common/formulas/mesh/mesh.h"

/* Seconds by part; those of a pipeline and of data parallelism are 0. */
typedef struct mesh_seconds {
    double part[MESH_PARTS];
} mesh_seconds;
double mesh_seconds_sum(const mesh_seconds *s);

typedef struct mesh_pass { /* forward, gradients of activations with what they compute again, gradients of weights */
    mesh_seconds f, b, w;
} mesh_pass;
mesh_pass mesh_block(const mesh_job *j, const mesh_plan *p, const mesh_rates *r);
mesh_pass mesh_head(const mesh_job *j, const mesh_plan *p, const mesh_rates *r);

/* Rows of a rank's products, and its columns of a width that tensor parallelism cuts. */
double mesh_rows(const mesh_job *j, const mesh_plan *p);
double mesh_kv_columns(const mesh_job *j, int tp);
