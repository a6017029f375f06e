/* SPDX-License-Identifier: MIT */
/* --dump: what another program needs to make the same run (tests/peers/run.py). */
#pragma once

#include "bench/run/run.h"

/* Before the first step: folder/start.safetensors (initial values, fp32), tokens.npy (int32, of all ranks: steps, global batch,
 * seq + 1) and run.json (everything else). Ends the job with a sentence when a file can't be written. */
void run_dump(run *x, const char *folder);
