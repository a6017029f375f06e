/* SPDX-License-Identifier: MIT */
/* What cases call their dtype. */
#ifndef STEPBENCH_TESTS_GPU_DTYPES_H
#define STEPBENCH_TESTS_GPU_DTYPES_H

extern const char *const case_dtype_names[5]; /* by sb_dtype */

#endif
