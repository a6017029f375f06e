/* SPDX-License-Identifier: MIT */
/* The check of a case before it is timed, on a slice of its model: see verify.c. */
#pragma once

#include "bench/ddp/case.h"

/* Fills err_grad and err_param. Returns false after setting the row to `fail`, `skip` or `oom`. Remembers outcomes. */
bool ddp_verify(ddp_case *k);
