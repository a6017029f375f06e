/* SPDX-License-Identifier: MIT */
/* A training step for tests: a device (the CPU, or with STEPBENCH_TEST_DEVICE=cuda the first GPU), small models, the
 * golden models of golden/make_golden_model.py, and comparisons that name the tensor which is wrong. */
#pragma once

#include "tests/support/model_values.h"
#include "tests/support/test.h"

OWNER(trainer, trainer_free)
#define OWNED_TRAINER OWNED_BY(trainer)

extern model_bed bed;
/* For setup and teardown of a group; teardown fails when a trainer left memory behind. */
int bed_create(void **state);
int bed_destroy(void **state);

/* Two blocks of width 32 with two heads, 23 words, batch 2, seq 13; fused kernels, unfused attention, fp32. */
step_options small_options(void);
/* The same with three blocks, a policy by name, and a learning rate of 0.01. */
step_options three_blocks(const char *precision);
enum { POLICIES = 5 };
extern const char *const policies[POLICIES]; /* "fp32" ... "fp16" */
trainer *create(const step_options *o);      /* fails the test when that is refused */
void step(trainer *t);                       /* one, or the test fails */

/* A trainer on a bed of its own, as a rank has that is a thread; freeing it fails the test when it left memory behind. */
trainer *own_trainer(model_bed *own, const step_options *o);
void own_trainer_free(model_bed *own, trainer *t);

/* Parameters and gradients after a few steps with golden parameters and tokens. */
enum { OUTCOME_STEPS = 3 };
typedef struct outcome {
    params *p;
    float *params, *grads;
    double losses[OUTCOME_STEPS];
} outcome;
outcome outcome_of(const step_options *o);
void outcome_free(outcome *r);
/* Fails the test unless these options give the same bits. */
void same_outcome(const outcome *want, const step_options *o, const char *what);

void set_params(trainer *t, const float *values); /* as all_params gives them */
float *all_logits(trainer *t);                    /* (batch seq, vocab) */

/* Parameters and tokens by the formulas of make_golden_model.py, for any dimensions. */
void golden_params(trainer *t);
void golden_tokens(trainer *t, int of_step);
/* Steps with these tokens; false with sb_last_message. */
bool golden_steps(trainer *t, double losses[OUTCOME_STEPS]);

typedef struct golden_model {
    model_config config;
    int seq, batch, steps, tensors;
    double *losses;          /* (steps) */
    float *logits, *grads;   /* of the first step */
    float *params;           /* after all steps */
    double *autocast, *pure; /* PyTorch's own errors in bf16: logits, then each gradient */
} golden_model;
extern const char *golden_folder;
golden_model golden_read(const char *name);
void golden_free(golden_model *g);

/* Fails the test unless worst_tensor is at most `bound`. */
void tensors_close(const params *p, const float *reference, const float *got, double bound, const char *what);
void same_bits(const params *p, const float *a, const float *b, const char *what);
