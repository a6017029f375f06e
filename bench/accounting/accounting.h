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

/* A line of the derivation, when it is asked for. */
void accounting_step(const accounting *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The row's answer: its column, and the last line of the derivation. */
void accounting_answer(const accounting *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void accounting_real(const accounting *a, const char *column, double value); /* infinite: left empty */

/* Texts valid until 32 further calls. */
const char *accounting_whole(double value);      /* "219,848,638,464" */
const char *accounting_size(double bytes);       /* "3517.58 GB (3276.0 GiB)", or in MB where there is less than one */
const char *accounting_plain(double value);      /* "4.6e14", "0.0625", "23.4": at most six digits */
const char *accounting_time(double seconds);     /* "2999.2 us" */
const char *accounting_rate(double bytes_per_s); /* "365 GB/s" */

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
