/* SPDX-License-Identifier: MIT */
/* The whole training step, as test cases: in each precision policy against the CPU's in fp32, bit for bit against
 * itself with other options, learning one batch by heart, and tuned. */
#pragma once

#include "tests/gpu/program/program.h"
#include "tests/support/model_values.h"

#define MODEL_OP "trainer" /* what --op calls it; --dtype takes the name of a policy */

/* The cases that were asked for. */
void list_model_cases(const arguments *x);
void run_model_cases(runner *r, const arguments *x);

/* ---- one model on one device ---- */

typedef struct model_shape {
    const char *name;
    model_config config;
    int batch, seq;
    double clip_norm;
} model_shape;

enum { MODEL_STEPS = 3 };
/* What a few steps leave: of each tensor in index order, without padding. */
typedef struct outcome {
    double losses[MODEL_STEPS];
    float *logits;         /* before the first step */
    float *first_grads;    /* of the first step */
    float *grads;          /* of the last */
    float *before, *after; /* parameters */
} outcome;

/* Options of a shape: train steps in `policy`, fused kernels, nothing beside them. */
step_options model_options(const model_shape *s, const precision *policy);
/* A trainer whose parameters are the same numbers in every policy, but for the roundings of fp16's smallest; NULL with
 * a sentence in `why`. */
trainer *model_create(const model_bed *b, const step_options *o, char *why, size_t why_bytes);
/* Random ids and targets, others for each step. */
void model_tokens(trainer *t, int of_step);
/* MODEL_STEPS steps; false with a sentence in `why`. */
bool model_run(const model_bed *b, const step_options *o, outcome *out, char *why, size_t why_bytes);
void outcome_free(outcome *o);

/* relative_l2 of the worst tensor of two arrays of all tensors, and its name. */
double model_worst(const model_config *c, const float *want, const float *got, char *name, size_t name_bytes);

/* ---- the list of cases ---- */

/* `bound`: relative L2 error of the logits and of each gradient against fp32 on the CPU; a tenth for the loss, three
 * times for what the steps moved. `rate`: the learning rate with which it learns a batch by heart. */
typedef struct model_policy {
    const char *name, *precision;
    sb_fp32_products split;
    double bound, rate;
    moments_kind moments;
} model_policy;

/* How a step is launched. */
typedef struct model_way {
    const char *name, *attention;
    fusion fusion;
    overlap overlap;
    bool grad_fp32;
} model_way;

/* What must not change a bit where attention is deterministic. */
typedef struct model_variation {
    const char *name;
    bool graph;
    overlap overlap;
    bool share;
    recompute recompute;
    int every, blocks;
} model_variation;

typedef enum model_kind { MODEL_COMPARE, MODEL_BITS, MODEL_OVERFIT, MODEL_TUNE } model_kind;
typedef struct model_case {
    char name[80];
    model_kind kind;
    const model_shape *shape;
    const model_policy *policy;
    const model_way *way;
    const model_variation *variation; /* of MODEL_BITS */
    bool small;
} model_case;

typedef struct model_list {
    model_case *items;
    int n;
} model_list;

enum { MODEL_SHAPES = 4 };
extern const model_shape model_shapes[MODEL_SHAPES]; /* the first is the smallest */
model_list model_cases(const arguments *x);          /* the caller frees its items */
