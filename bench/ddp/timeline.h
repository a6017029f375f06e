/* SPDX-License-Identifier: MIT */
/* A recorded step of a case: see timeline.c. */
#ifndef STEPBENCH_BENCH_DDP_TIMELINE_H
#define STEPBENCH_BENCH_DDP_TIMELINE_H

#include "bench/ddp/case.h"

/* Records a step, fills the recorded_ columns and writes its files. Time before it, for launches are slower once
 * something records. */
void ddp_record(ddp_case *k, replica *r);

#endif
