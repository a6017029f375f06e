/* SPDX-License-Identifier: MIT */
/* What this machine was measured to do: its rates, the memory of its steps, and the meshes that benches ran on it. */
#pragma once

#include "bench/mesh/planner.h"
#include "common/core/csv.h"

/* ---- rates.c ---- */

/* What rows in the folder of this machine say about it and a model, which is looked up once. */
typedef struct planner_machine {
    const char *dir;
    char commit[64], gpu[96]; /* of the newest step of one GPU; "": there is none, and rows of any commit count */
    mesh_rates rates;
    mesh_measured shapes;
    char missing[512],
        uncalibrated[512]; /* a sentence, or "": no rates; some are a table's, and no step calibrates them */
} planner_machine;
const planner_machine *planner_machine_of(session *s, const char *model, const mesh_job *j);
/* It is ok, of that commit, and of several ranks only if their GPUs reach each other's memory, or not, as in this session. */
bool planner_row_counts(const planner_machine *m, const csv *c, size_t row);
bool planner_row_of(const csv *c, size_t row, const mesh_job *j); /* it is of that model */
/* It has these values, as "column=value" with blanks between; where `some`, a column may be absent or empty. */
bool planner_row_has(const csv *c, size_t row, const char *pairs, bool some);
/* The mesh that a bench of one axis has unless it is told otherwise, or its only one: all ranks on that axis. */
bool planner_all_ranks(const char *column, const char *value);
/* The rates of --rates. False after the row was set to skip: they were not measured. */
bool planner_rates(session *s, const bench_case *c, row *w, const mesh_job *j, mesh_rates *r);

/* ---- plan.c ---- */

/* What the rank that needs most takes for its step, by the plan of this device; data parallelism is that of `strategy`. `ends`: of a
 * pipeline's ranks those alone that have its first or its last stage. One axis alone, up to 8 ranks and 64 micro-batches; else NAN. */
double planner_planned_bytes(session *s, const char *model, const mesh_job *j, const char *strategy, const mesh_plan *p,
                             const mesh_rates *r, bool ends);

/* ---- measured.c ---- */

void planner_run_measured(session *s, const bench_case *c, row *w);
void planner_finish(session *s); /* says how far off the meshes of `measured` were */
