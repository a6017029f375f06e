/* SPDX-License-Identifier: MIT */
/* The dtypes of tensors on the host: found by name, rounding to one, and arrays of floats to and from its memory. */
#pragma once

#include "common/device/device.h"
#include "kernels/kernels.h"

sb_dtype dtype_named(const char *name); /* the dtype that sb_dtype_name calls so; dies when there is none */

/* The nearest value of the dtype, ties to even; fp32 and tf32, which is fp32 in memory, stay as they are. */
float dtype_round(sb_dtype t, float x);

/* n elements between floats and the dtype's memory, which is the host's. */
void dtype_store(sb_dtype t, void *out, const float *in, size_t n);
void dtype_load(sb_dtype t, float *out, const void *in, size_t n);
/* The same with the dtype's memory on a device, after what is enqueued on its stream. */
void dtype_upload(device *d, sb_dtype t, void *to, const float *in, size_t n);
void dtype_download(device *d, sb_dtype t, float *out, const void *from, size_t n);
