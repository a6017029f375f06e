/* SPDX-License-Identifier: MIT */
/* What cases call their dtype. */
#pragma once

extern const char *const case_dtype_names[5]; /* by sb_dtype */
