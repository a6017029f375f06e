/* SPDX-License-Identifier: MIT */
/* What the questions of bench_accounting share: a row being computed, its derivation line by line, and texts of
 * numbers, and the rates that it divides by. */
#pragma once

#include "common/formulas/accounting.h"
#include "common/session/session.h"
#include "common/model/config.h"

typedef struct accounting {
    session *s;
    const bench_case *c; /* of the row being computed */
    row *w;
    bool steps; /* the derivation is printed */
} accounting;

/* A line of the derivation, when it is asked for. Formats are %s, %f and %g as in printf, %% and, of a double,
 *   %W  "219,848,638,464"
 *   %B  bytes: "3517.58 GB (3276.0 GiB)", or in MB where there is less than one
 *   %P  "4.6e14", "0.0625", "23.4": at most six digits
 *   %T  seconds: "2999.2 us";  %R  bytes a second: "365 GB/s" */
void accounting_step(const accounting *a, const char *fmt, ...);
/* The row's answer, with the same formats: its column, and the last line of the derivation. */
void accounting_answer(const accounting *a, const char *fmt, ...);
void accounting_real(const accounting *a, const char *column, double value); /* infinite: left empty */

/* The stack of the case's options. */
ffn_stack accounting_stack(const accounting *a);

/* A model of the option --model: a named size, or a number of parameters. */
typedef struct accounting_model {
    double parameters, matmul_parameters; /* the same where only a number is known */
    double unit_parameters;               /* of a block; 0 where only a number is known */
} accounting_model;
#define ACCOUNTING_MODELS MODEL_SIZE_CHOICES
bool accounting_model_parse(const char *text, accounting_model *m);

/* C and W of a case: of its options, or with --measured 1 of what other benches stored of this machine. */
typedef struct accounting_rates {
    double flops, bandwidth;
} accounting_rates;
/* Reads the options of these names; `flops` may be NULL. False after the row was set to skip: C was not measured. */
bool accounting_rates_of(const accounting *a, const char *flops, const char *bandwidth, accounting_rates *r);
/* W as it was measured, bytes a second, and in which file; NAN: it was not. */
double accounting_measured_bandwidth(const char *results_dir, const char **from);
/* The mesh of the case; false as above. */
bool accounting_mesh(const accounting *a, ffn_mesh *m);
