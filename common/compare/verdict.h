/* SPDX-License-Identifier: MIT */
/* Whether one time is longer than another, from the medians of two sides and what is known of their noise. Ratios are
 * natural logarithms; above 0 the second side is slower. Two sources of noise add up: that of the samples of a run, and
 * that from run to run, which no single run knows. SAME needs a 95 % interval inside the margin; FASTER and SLOWER need
 * 3.09 standard errors, so that 1000 equal pairs give about two false verdicts. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef enum verdict { VERDICT_SAME, VERDICT_FASTER, VERDICT_SLOWER, VERDICT_UNCLEAR } verdict;

/* The runs of one case on one side. */
typedef struct timed {
    size_t runs;
    double median;         /* of the runs' medians; any unit of time */
    double standard_error; /* relative, of one run's median; NAN when its samples give none */
    double runs_deviation; /* relative standard deviation of the runs' medians; NAN below 3 runs */
    double sm_mhz;         /* NAN when it is not known */
    bool throttled;
} timed;

typedef struct judgement {
    verdict verdict;
    double ratio, lo, hi; /* 95 %; the bounds are NAN when there is no interval */
    size_t runs_needed;   /* per side, to settle an UNCLEAR one; 0 when runs are not what is missing */
    const char *reason;   /* of UNCLEAR, else "" */
} judgement;

/* `noise`: relative standard deviation from run to run. `margin`: ln of the largest ratio that counts as the same. */
judgement judge_times(const timed *a, const timed *b, double noise, double margin);

/* Relative standard error of a median, from the distance of two of its samples' percentiles over that of a normal
 * distribution with deviation 1 (2.563 for p10 and p90), of n samples whose neighbours correlate by lag1. NAN below 6
 * samples, which say too little of a median. */
double median_error(double median, double distance, double normal_distance, double n, double lag1);
