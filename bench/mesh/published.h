/* SPDX-License-Identifier: MIT */
/* Training runs that others published, as jobs and plans of the planner (results/published/mesh.csv). */
#ifndef STEPBENCH_BENCH_MESH_PUBLISHED_H
#define STEPBENCH_BENCH_MESH_PUBLISHED_H

#include "common/core/csv.h"
#include "common/formulas/mesh.h"

/* What a source reports: tokens/s of a GPU, TFLOP/s of a GPU with all pairs of tokens or the causal half, or seconds of a step. */
typedef enum published_unit { PUBLISHED_TOKENS, PUBLISHED_FULL, PUBLISHED_CAUSAL, PUBLISHED_SECONDS } published_unit;
#define PUBLISHED_UNIT_NAMES "tok/s/GPU|TFLOP/s full|TFLOP/s causal|s"

typedef struct published_run {
    mesh_job job;
    mesh_plan plan;
    const char *machine;
    double reported;
    published_unit unit;
    bool fit; /* its machine's share of the peak is fitted to it, for its width of products */
} published_run;

const csv *published_table(void); /* the file's rows; read once */
published_run published_at(size_t row);
/* A step of `seconds` in the unit of the run. */
double published_value(const published_run *run, double seconds);
/* Percent by which a step of `seconds` is faster than reported; negative: slower. */
double published_error_pct(const published_run *run, double seconds);
/* The rates of a run's machine, with the shares fitted to the runs that are marked. */
mesh_rates published_rates(const published_run *run);

/* Percent: median and largest of the absolute errors of the runs that are not fitted; with `long_too`, also of those
 * whose sequences are split over 4 ranks and more. Returns how many they are. */
int published_errors(bool long_too, double *median, double *worst);

#endif
