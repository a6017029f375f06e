/* SPDX-License-Identifier: MIT */
/* The dtypes of tensors on the host: their names, rounding to one, and arrays of floats to and from its memory. */
#ifndef STEPBENCH_MODEL_DTYPES_H
#define STEPBENCH_MODEL_DTYPES_H

#include "kernels/kernels.h"

const char *dtype_name(sb_dtype t);               /* "bf16", "fp16", "tf32", "fp32" */
bool dtype_find(const char *name, sb_dtype *out); /* false when there is none of this name */

/* The nearest value of the dtype, ties to even; fp32 and tf32, which is fp32 in memory, stay as they are. */
float dtype_round(sb_dtype t, float x);

/* n elements between floats and the dtype's memory, which is the host's. */
void dtype_store(sb_dtype t, void *out, const float *in, size_t n);
void dtype_load(sb_dtype t, float *out, const void *in, size_t n);

#endif
