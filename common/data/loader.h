/* SPDX-License-Identifier: MIT */
/* A thread that fills the next steps' tokens of a rank ahead, into memory that the caller gives (pinned, for a GPU). */
#pragma once

#include "common/data/data.h"

enum { LOADER_RING = 8 /* batches that are filled or taken and not given back */ };

typedef struct loader_options {
    const data *from;
    int seq, vocab;
    int64_t batch;              /* samples of this rank in a step */
    int64_t global_batch;       /* of all ranks */
    int64_t rank_first;         /* this rank's first sample in a step: rank x batch */
    int64_t step;               /* the first one: where a resumed run stands */
    bool same;                  /* the first step's samples in every step */
    double delay_s;             /* more for each batch: a slow loader, planted */
    int32_t *ring[LOADER_RING]; /* each (2, batch, seq): ids, then targets */
} loader_options;

typedef struct loader_batch {
    int64_t step;
    const int32_t *ids, *targets; /* (batch, seq) */
    double surprise;              /* of generated tokens, mean in nats; NAN otherwise */
    int code;                     /* of loader_fill */
    char problem[160];
} loader_batch;

typedef struct loader loader;
loader *loader_start(const loader_options *o);
/* The next step's batch. How long that took is added to *waited_s. */
const loader_batch *loader_take(loader *l, double *waited_s);
void loader_give(loader *l); /* the oldest one that was taken may be written again */
void loader_stop(loader *l); /* NULL is fine */
/* Fills `ids` and `targets` (batch, seq) as the thread does. Returns an exit code, with a sentence in `problem` if it is not 0:
 * EXIT_CODE_USAGE for a token that the model has no row for, EXIT_CODE_FAILURE for a file that can't be read any more. */
int loader_fill(const loader_options *o, int64_t step, int32_t *ids, int32_t *targets, double *surprise, char *problem,
                size_t problem_bytes);
