/* SPDX-License-Identifier: MIT */
/* The check of an attention case: rows of its outputs against the fp64 oracle. */
#pragma once

#include "bench/attention/problem.h"

/* Compares o, lse, dq, dk and dv (o and lse with a.forward_only) of a case whose step has run. Sets the case's errors;
 * false when one is out of bounds (the row is `fail`) or the oracle had no memory. */
bool attention_verify(attention_case *ac);
