/* SPDX-License-Identifier: MIT */
/* The questions of bench_accounting: one function each, which fills the row of a case. */
#pragma once

#include "bench/accounting/accounting.h"

void accounting_run_memory(const accounting *a);
void accounting_run_fsdp(const accounting *a);
void accounting_run_compute_bound(const accounting *a);
void accounting_run_batch(const accounting *a);
void accounting_run_closed_forms(const accounting *a);
void accounting_run_data_parallel(const accounting *a);
void accounting_run_buckets(const accounting *a);
void accounting_run_zero(const accounting *a);

#define ACCOUNTING_WAYS                                                                                                \
    "as-given|best-split|best-whole-split|overlap-axes|more-axes|8bit-weights|8bit-all|keep-weights|faster-link|"      \
    "pipeline|context"
