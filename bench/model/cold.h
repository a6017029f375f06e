/* SPDX-License-Identifier: MIT */
/* Each case of a bench in a process of its own, so that nothing precedes its first step. */
#pragma once

#include "common/options/options.h"

/* Starts this program once for each case of `o`, one after the other, and waits for it: with the case's values, and the
 * other options as argv has them. The largest exit code; EXIT_CODE_UNSUPPORTED only when it is that of all. */
int cold_run_cases(const options *o, int argc, char **argv);
