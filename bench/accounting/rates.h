/* SPDX-License-Identifier: MIT */
/* The rates that bench_accounting divides by, and the mesh that has them. */
#ifndef STEPBENCH_BENCH_ACCOUNTING_RATES_H
#define STEPBENCH_BENCH_ACCOUNTING_RATES_H

#include "bench/accounting/accounting.h"

/* C and W of a case: of its options, or with --measured 1 of what other benches stored of this machine. */
typedef struct accounting_rates {
    double flops, bandwidth;
} accounting_rates;
/* Reads the options of these names; `flops` may be NULL. False after the row was set to skip: C was not measured. */
bool accounting_rates_of(const accounting *a, const char *flops, const char *bandwidth, accounting_rates *r);
/* The mesh of the case; false as above. */
bool accounting_mesh(const accounting *a, mesh *m);

#endif
