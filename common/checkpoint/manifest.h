/* SPDX-License-Identifier: MIT */
/* manifest.json, written last: whose checkpoint it is, what a run must remember besides its arrays, and every file with
 * its hashes. It ends with a hash of itself. A reader trusts no number in it: dimensions must make a model, and the files
 * must be those of that model, covered once and whole. There is no state of random numbers: every draw is a function of
 * seed, index and step. */
#pragma once

#include "common/checkpoint/layout.h"

typedef struct checkpoint_data { /* what has been read of the training data */
    char file[256];              /* "" for made data */
    uint64_t hash, seed;
    int64_t window, samples; /* tokens of a sample; samples consumed by all ranks together */
} checkpoint_data;

typedef struct checkpoint_schedule { /* of the learning rate */
    char kind[16];                   /* "constant", "linear", "cosine" ...; "" for none */
    double lr, min_lr;
    int64_t warmup, steps, position; /* position: updates that it has counted */
} checkpoint_schedule;

typedef struct checkpoint_state {
    int64_t step;                 /* of the run, behind which this state is: the checkpoint's name */
    sb_optimizer_state optimizer; /* grad_norm, found_nonfinite and skip are of one step, and are not kept */
    uint64_t seed;                /* of initial values */
    checkpoint_data data;
    checkpoint_schedule schedule;
    char updates[48];  /* what else decides them, as in "bf16, --clip 1"; "": an earlier version did not say */
    char strategy[32]; /* for people: loading does not ask for it */
    int ranks;         /* likewise */
} checkpoint_state;

typedef struct checkpoint_run { /* what one rank wrote in one go: a hash for each CHECKPOINT_BLOCK from its start */
    int file;
    int64_t offset, bytes;
    uint64_t *hashes;
} checkpoint_run;
typedef struct checkpoint_runs {
    checkpoint_run *r;
    int n, room;
} checkpoint_runs;
int64_t checkpoint_blocks(int64_t bytes);
/* A run without hashes yet. Returns it; valid until the next call. */
checkpoint_run *checkpoint_runs_add(checkpoint_runs *runs, int file, int64_t offset, int64_t bytes);
void checkpoint_runs_free(checkpoint_runs *runs);
/* Whether runs cover the data of every file exactly once; sorts them by file and offset. */
bool checkpoint_runs_cover(checkpoint_runs *runs, const checkpoint_layout *l, char *why, size_t why_bytes);

typedef struct checkpoint_manifest {
    checkpoint_layout *layout;
    checkpoint_state state;
    checkpoint_runs runs;
} checkpoint_manifest;

char *checkpoint_manifest_write(const checkpoint_layout *l, const checkpoint_state *s, const checkpoint_runs *runs);
/* False with a sentence; the manifest is to be freed in any case. */
bool checkpoint_manifest_read(const char *text, size_t bytes, checkpoint_manifest *out, char *why, size_t why_bytes);
void checkpoint_manifest_free(checkpoint_manifest *m);
