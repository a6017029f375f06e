/* SPDX-License-Identifier: MIT */
/* The library context that the trainers of a bench share, and a tuned trainer for a case. */
#pragma once

#include "bench/model/float8.h"
#include "common/replica/replica.h"
#include "common/session/session.h"
#include "common/train/trainer.h"
#include "common/train/tune/choices.h"
#include "kernels/kernels.h"

/* In session.user, from model_start to model_finish, which are hooks of the session. */
typedef struct model_bench {
    const sb_kernels *kernels;
    sb_context *ctx;
    choices
        *known; /* algorithms of matrix products: shipped, kept in <results_dir>/gemm_choices.csv, and of this run */
    float8_fault planted; /* in the check of a float8 step */
    void *more;           /* the bench's own */
} model_bench;
void model_start(session *s);
void model_start_anew(session *s); /* the same, but neither shipped nor kept choices count: all are timed again */
/* Ends the program with one sentence where no policy of --precision can run here; in a sweep of more such cases are `skip`. */
void model_float8_gate(const session *s);
void model_start_gated(session *s); /* model_start with that */
void model_finish(session *s);
replica_place model_place(session *s, launch *l); /* where the replicas of a case live */

/* Creates a trainer and tunes it: its products (choices are kept unless rows go nowhere) and what only whole steps can
 * tell. NULL after setting the row's status; out of memory is left to the session. */
trainer *model_trainer(session *s, const step_options *o, row *w);
/* The same, of which only the products are tuned: for a check, which is not timed. OVERLAP_AUTO is then OVERLAP_ALL. */
trainer *model_trainer_untimed(session *s, const step_options *o, row *w);
/* The same, of which nothing is tuned: products are the library's first proposals. */
trainer *model_trainer_untuned(session *s, const step_options *o, row *w);
/* A table of the tuned products on stdout: shape, time, rate, gain over the library's first proposal, what was
 * chosen. */
void model_print_products(const trainer *t);
