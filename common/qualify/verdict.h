/* SPDX-License-Identifier: MIT */
/* Is a GPU, or a link between two, as good as it should be? Pure functions of measured values, of a reference and of the
 * values of its peers. A bound is one-sided: nothing is too fast.
 *
 * Against a reference: slow below its floor, or without one below value (1 - tolerance), for times above value
 * (1 + tolerance). Against peers, from four of them on: slow when the robust z score (x - median) / (1.4826 MAD) is
 * beyond 3.5 and x is 3 % behind. A pair of peers names neither. Against its own past, from three runs on: slow beyond the
 * tolerance from their median. The tolerances are ours: what healthy GPUs of one type differ by, with room. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/device/health.h"

/* From good to bad; what is worse hides what is better. */
typedef enum verdict { VERDICT_OK, VERDICT_NOT_CHECKED, VERDICT_SLOW, VERDICT_BUSY, VERDICT_BROKEN } verdict;
const char *verdict_word(verdict v); /* "ok", "not checked", "slow", "busy", "broken" */
bool verdict_missed(verdict v);      /* whether a bound was missed: slow, busy or broken */
/* Joins two findings about a GPU: the worse one if a bound was missed; ok where one is, since not everything has a
 * reference. */
verdict verdict_join(verdict a, verdict b);

typedef struct qualify_metric {
    const char *name;     /* with its unit: "gemm_bf16_tflops" */
    double tolerance;     /* 0.08: 8 % */
    bool lower_is_better; /* a time */
} qualify_metric;
const qualify_metric *qualify_metric_find(const char *name); /* NULL when there is none */

typedef struct qualify_reference { /* NAN: unknown */
    double value, floor;           /* of a time, `floor` is its upper bound */
} qualify_reference;
double qualify_bound(const qualify_metric *m, const qualify_reference *r); /* NAN without a reference */

typedef struct judgement {
    verdict word;
    char against[16];  /* "reference", "peers", "past"; "" when there was nothing to compare with */
    double expected;   /* the reference's value, or the median of the others; NAN */
    double bound;      /* that it must reach; NAN */
    double behind_pct; /* how much worse than expected; negative: better */
} judgement;
/* Judges value i of n, a GPU or a pair each; NAN: not measured, which counts for nobody. r may be NULL. */
judgement qualify_judge(const qualify_metric *m, const qualify_reference *r, const double *values, size_t n, size_t i);

/* The same judgement, or slow against its past: earlier values of the same GPU that were ok. */
judgement qualify_judge_past(const qualify_metric *m, judgement j, double value, const double *past, size_t n);

/* Which results differ from what most have, bit for bit. Without a majority nobody is right: all are odd. False when
 * none is. */
bool qualify_odd(const uint64_t *results, size_t n, bool *odd);

/* Whether GPU i of n is to blame for slow pairs: with three GPUs or more, when most pairs that it is in are slow.
 * slow: (n, n), from and to. */
bool qualify_links_slow(const bool *slow, size_t n, size_t i);

/* The health of GPU i of n, from what NVML said before anything ran, with the counters of health_since. why: a sentence, ""
 * when ok. `throttle`: words of clocks_throttle_words under load. */
verdict qualify_health(const gpu_health *gpus, size_t n, size_t i, const char *throttle, char *why, size_t why_bytes);
