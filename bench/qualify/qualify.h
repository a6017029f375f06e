/* SPDX-License-Identifier: MIT */
/* What the files of bench_qualify share. A set is one thing measured on every GPU (or pair, or group of GPUs) of the job:
 * an item each. It is measured when the first of its rows is wanted; every rank has all of its items. What is slower than
 * it should be is measured again, alone, before it is called so. */
#pragma once

#include <string.h>

#include "bench/attention/problem.h"
#include "bench/roofline/roofline.h"
#include "common/core/text.h"
#include "common/launch/launch.h"
#include "common/qualify/reference.h"
#include "common/train/tune/choices.h"

enum { QUALIFY_SETS = 32, QUALIFY_PAST = 16 };

typedef struct qualify_item {
    double value, again; /* NAN: not measured; again: the second time, of a suspect */
    row_status status;
    char why[256]; /* of a status that is not ok */
    char throttle[128];
    double sm_mhz;
    judgement j;
    double past[QUALIFY_PAST]; /* earlier values of this GPU, from the newest on */
    size_t past_n;
} qualify_item;

typedef struct qualify_set {
    char name[64]; /* "gemm bf16" */
    const char *variant, *dtype;
    const qualify_metric *metric;
    char shape[64]; /* what the reference is asked for: "n=8192", "bf16 n=16384" */
    bool by_rank;   /* an item is a GPU; else a pair or a group */
    size_t n;
    qualify_item *items; /* [n] */
} qualify_set;

typedef struct qualify {
    attention_context base; /* first: bench/attention looks for it at session.user */
    roofline r;
    session *s;
    launch *l;
    int ranks;
    csv *reference;     /* NULL: none for this GPU */
    gpu_health *health; /* [ranks], as it was before anything ran; with what came meanwhile for verdicts */
    bool looked_again;
    char (*uuid)[64]; /* [ranks] */
    choices *known;
    qualify_set sets[QUALIFY_SETS];
    size_t sets_n;
} qualify;

/* The set that a case belongs to, measured now unless it has been. All ranks together. */
qualify_set *qualify_set_of(qualify *q, const bench_case *c);
size_t qualify_index(const qualify *q, const bench_case *c); /* of the case's item in its set */

/* Which GPUs an item of pairs or groups has; false when text is none of `ranks` ranks. */
bool qualify_group_parse(const char *text, int ranks, int *first, int *count); /* "0..3" */
int qualify_pairs(int ranks);                                                  /* ordered ones */
size_t qualify_pair_index(int ranks, int from, int to);

/* Fills the judgements of the items from their values. */
void qualify_judge_set(qualify *q, const bench_case *c, qualify_set *set);
void qualify_read_past(qualify *q, const bench_case *c, qualify_set *set); /* what earlier runs had, for the former */
void qualify_exchange(qualify *q, qualify_set *set);                       /* items by rank: everyone gets everyone's */

/* ---- how things are measured: into a row that nobody sees, which gets the status ---- */

/* Only on this rank, into the row q->r.w: one of these per variant; NULL for another variant. */
typedef bool qualify_alone(qualify *q, const bench_case *c, double *value);
qualify_alone *qualify_alone_of(const char *variant);
/* All ranks together. Fills the items of this rank (by rank), or of all on every rank. */
void qualify_pairs_run(qualify *q, const bench_case *c, qualify_set *set, const bool *wanted);
void qualify_groups_run(qualify *q, const bench_case *c, qualify_set *set, const bool *wanted);
void qualify_gemm_together(qualify *q, const bench_case *c, qualify_set *set);
void qualify_step_together(qualify *q, const bench_case *c, qualify_set *set);

/* Fills in the value and status of an item measured with a scratch row. */
void qualify_item_fill(qualify *q, qualify_item *item, const row *scratch, bool measured, double value);

/* ---- what follows ---- */

/* What a verdict on an item rests on, in words. */
void qualify_explain(const qualify_set *set, const qualify_item *item, char *out, size_t bytes);
/* The verdict on GPU `rank` from all sets; why: what was found, or not checked. */
verdict qualify_of_gpu(qualify *q, int rank, char *why, size_t why_bytes);
