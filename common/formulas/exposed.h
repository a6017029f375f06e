/* SPDX-License-Identifier: MIT */
/* What buckets of gradients cost a step whose compute they run beside: the least that contention and the length of their
 * chain allow. Two numbers describe contention; both come from one measured bucket size, and predict the others.
 *
 *   exposed = max(last + slowdown (alone - last), stretch alone - window)
 *
 * The first is a chain that ends with the compute: it slows compute down, and only its last collective is waited for. The
 * second is a chain longer than the compute beside it. Limits: compute is taken as equally sensitive throughout, and
 * the chain as starting with it; where alone is near window / stretch, the larger of the two is too sharp a corner. */
#pragma once

typedef struct bucket_load { /* milliseconds of a step */
    double alone;            /* all collectives with nothing beside them */
    double last;             /* the part of the last one beside which there is nothing to compute */
    double window;           /* compute beside which they may run, without them */
} bucket_load;

typedef struct bucket_contention {
    double slowdown; /* ms more of compute for each ms (alone) of collectives beside it */
    double stretch;  /* ms that the chain takes for each ms alone; NAN: it ended with the compute */
    double alone;    /* of the measured size: without stretch, longer chains cannot be predicted */
} bucket_contention;

/* From a measured size; tail: milliseconds that compute waited for the chain. NAN where alone is not above tail. */
bucket_contention bucket_contention_of(const bucket_load *l, double exposed, double tail);
/* Milliseconds; NAN where the contention does not say. */
double bucket_exposed(const bucket_load *l, const bucket_contention *c);
/* The part of a collective of `last` ms behind n - 1 others that AdamW of theirs (all of it: update ms) does not hide. */
double bucket_last_exposed(double last, double update, double n);

typedef struct call_cost {   /* t = o + bytes / w */
    double overhead_s, rate; /* o; w in bytes a second */
    double residual_pct;     /* the largest |t by the fit - t| / t */
} call_cost;

/* Least squares with weights 1/t^2: relative errors count, not only those of the largest size. n >= 2 sizes. */
call_cost call_cost_fit(const double *bytes, const double *seconds, int n);

/* y at x between n >= 1 points in ascending order of x, by lines of the logarithms; constant below the first, in
 * proportion to x above the last. */
double interpolate_log(const double *x, const double *y, int n, double at);
