/* SPDX-License-Identifier: MIT */
/* A recorded step of a case: see timeline.c. */
#pragma once

#include "bench/ddp/case.h"

/* Records a step, fills the recorded_ columns and writes the files. Call it after timing: launches are slower once a
 * recorder is on. */
void ddp_record(ddp_case *k, replica *r);
