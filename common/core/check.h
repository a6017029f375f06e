/* SPDX-License-Identifier: MIT */
/* The checker: does `got` equal `ref` within the bound of its precision? NaN and Inf never pass where the reference is
 * finite. Compiled without any fast-math flag (a build check makes sure of that). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct check_bound {
    double rel_l2;  /* ||got - ref|| / ||ref|| at most */
    double rel_row; /* worst row's ||got - ref|| / (||ref|| of that row + floor) at most; catches one shifted row.
                     * The floor is 0.05 of the root mean square (rms) of all of ref, times sqrt(row). */
    double max_abs; /* worst element's |got - ref| at most, relative to the rms of ref or of its row, the larger */
    /* Rows whose reference vanishes by cancellation (dq of a query that sees one key) have no scale of their own:
     * where the row's rms is under 1e-9 zero_scale, rel_row and max_abs are relative to zero_scale (1 for inputs
     * drawn from N(0,1)) and the row does not count in rel_l2. 0: there are no such rows. */
    double zero_scale;
    /* The L2 norm of the terms that add up to each row, or NULL. A row whose terms cancel keeps their errors: where they
     * are larger than the row, rel_row and max_abs take them for it, and in rel_l2 its error counts by the share that is left
     * of them. Rows that do not cancel are judged as without. */
    const double *terms;
} check_bound;

typedef struct check_result {
    bool ok;
    double rel_l2, rel_row, max_abs; /* as measured, same definitions */
    size_t worst, nonfinite; /* index of the worst element; count of elements not finite where ref is, or the reverse */
    double got, ref;         /* values at `worst` */
} check_result;

/* n elements in rows of `row` elements (row <= n). Where ref is not finite, got must be the same (inf of that sign).
 * Comparing nothing (n == 0) is not ok. */
check_result check_compare(const double *ref, const double *got, size_t n, size_t row, check_bound bound);
/* Compares n logarithms: one that is wrong by e makes what it is the logarithm of wrong by the factor 1 + e, however
 * close to 0 it is. So its error counts as it is, or relative to a logarithm larger than 1, whose own rounding is; the worst is
 * rel_row and max_abs, the root of their mean square rel_l2, and none may be above bound.rel_l2. */
check_result check_logarithms(const double *ref, const double *got, size_t n, check_bound bound);
/* The larger error; unlike fmax it keeps a NaN, which is the worst of all. */
double check_worse(double a, double b);
/* "rel_l2 3.1e-03 (bound 1.0e-02), worst element [17] got 1.5 want 1.25": for reasons and messages. */
void check_describe(const check_result *r, check_bound bound, char *out, size_t out_bytes);
/* Bounds of an attention output or gradient by dtype name ("bf16", "fp16", "tf32", "fp32"). */
check_bound check_attention_bound(const char *dtype, bool backward);
/* The bound of dq or dk where the norms of its rows' terms are known: a row may be as wrong as one of an output. */
check_bound check_terms_bound(const char *dtype, const double *terms);
