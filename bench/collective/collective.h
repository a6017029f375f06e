/* SPDX-License-Identifier: MIT */
/* A case of bench_allreduce on all ranks: set up, verified, timed, verified again. */
#pragma once

#include "bench/collective/problem.h"

/* Runs the case and fills the row; every rank of the job calls it, members or not. */
void collective_run(collective *k);
