/* SPDX-License-Identifier: MIT */
/* What the status of a kernel call makes of a row. */
#ifndef STEPBENCH_SESSION_STATUS_H
#define STEPBENCH_SESSION_STATUS_H

#include <stdbool.h>

#include "common/rows/rows.h"
#include "kernels/kernels.h"

/* True for SB_OK; else the row says why not: skip where the kernel does not take it, oom, or fail. what: which call; may be NULL. */
bool status_ok(row *w, sb_status status, const char *what);

#endif
