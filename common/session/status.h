/* SPDX-License-Identifier: MIT */
/* What the status of a kernel call makes of a row. */
#pragma once

#include <stdbool.h>

#include "common/rows/rows.h"
#include "kernels/kernels.h"

/* True for SB_OK; else the row says why not: skip where the kernel does not take it, oom, or fail. what: which call; may be NULL. */
bool status_ok(row *w, sb_status status, const char *what);
