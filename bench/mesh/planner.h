/* SPDX-License-Identifier: MIT */
/* What the variants of bench_mesh share: the job of a case, and the columns of a plan. */
#pragma once

#include "common/formulas/mesh/mesh.h"
#include "common/session/session.h"

#define PLANNER_MODELS "tiny, small, medium, large, xl, 2.7b, 10b, 8b, llama3-8b, llama3-70b, llama3-405b or gpt-175b"
#define PLANNER_PRECISIONS "bf16|bf16-pure|fp8"
#define PLANNER_WAYS                                                                                                   \
    "ddp|zero1|zero2|fsdp-keep|fsdp|hsdp|tp-all-reduce|tp-nccl|tp-copy|gpipe|1f1b|interleaved|zb-h1|zb-v|"             \
    "tp2-ddp|tp2-fsdp|tp2-copy-ddp|tp2-copy-fsdp|1f1b2-ddp|1f1b2-fsdp|1f1b2-no-sync|1f1b2-tp2|zb-v2-ddp|zb-v2-no-"     \
    "sync|zb-v2-tp2|cp-zero2|cp-fsdp|"                                                                                 \
    "cp2-fsdp|cp2-tp2"
#define PLANNER_RATES MESH_MACHINE_NAMES "|measured"

/* Dimensions of a model of the option --model, in `job`; false: there is no such model. */
bool planner_model(const char *name, mesh_job *job);
/* How a bench of steps is asked for that model: by its size, or by all dimensions; with the job's layers, or for a step of one GPU,
 * which may have fewer. Caller frees. */
char *planner_bench_model(const char *name, const mesh_job *job, bool one_gpu);
/* A sentence when the benches have no such model, else NULL. */
const char *planner_no_bench_model(const mesh_job *job);
/* The question of a case but for `bytes`; its mesh is that of --mesh, or with any all 0. False with a sentence. */
bool planner_question(const bench_case *c, mesh_question *q, char *why, size_t why_bytes);
typedef struct planner_policy {
    const char *name;
    double param, grad, state;
} planner_policy;
void planner_policy_set(mesh_job *j, const char *name, const char *grads); /* of --precision and --grad-dtype */
const planner_policy *planner_policy_of(const mesh_job *j);

/* The variants: each fills the row of a case. */
void planner_run_best(session *s, const bench_case *c, row *w);
void planner_run_lacking(session *s, const bench_case *c, row *w);
void planner_run_published(session *s, const bench_case *c, row *w);
void planner_run_schedule(session *s, const bench_case *c, row *w);

/* Columns of a plan and of its prediction. */
void planner_plan_columns(row *w, const mesh_job *j, const mesh_plan *p, const mesh_prediction *x, const mesh_rates *r);
