/* SPDX-License-Identifier: MIT */
/* How the ranks of a case share a step: --mesh and --strategy, for benches whose ranks share layers or stages; --cp. */
#pragma once

#include "common/mesh/mesh.h"
#include "common/options/options.h"
#include "common/step/options.h"

/* clang-format off */
#define MODEL_MESH_OPTIONS(all, axes)                                                                                  \
    {"mesh", OPTION_TEXT, OPTION_LIST, all,                                                                            \
     .help = "how the ranks share a step, as in " axes "; an axis without a size, else dp_shard, takes the others"}, \
    {"strategy", OPTION_CHOICE, OPTION_LIST, "ddp",                                                                    \
     .help = "strategy of data parallelism, among ranks that hold the same parts of the model",                        \
     .choices = "ddp|zero1|zero2|fsdp|fsdp-keep|fsdp-no-sync|hsdp"}
/* clang-format on */

typedef struct model_mesh {
    mesh m;
    int data;             /* ranks whose tokens differ */
    const char *strategy; /* of parallel_strategies */
} model_mesh;

/* The mesh of a case of the model `o`, by --mesh, else by --cp and --replicas, with `chunks` chunks of layers a stage. False with a
 * sentence. */
bool model_mesh_of(const bench_case *c, const step_options *o, int chunks, model_mesh *out, char *why,
                   size_t why_bytes);
/* For bench_info.validate: false with the sentence of the first case if no case has a mesh that is possible, or with one
 * for a list whose meshes are the axes of one. */
bool model_mesh_validate(const options *o, char *msg, size_t msg_bytes);
/* The same behind model_steps_validate. */
bool model_shared_steps_validate(const options *o, char *msg, size_t msg_bytes);
