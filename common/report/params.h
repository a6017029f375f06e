/* SPDX-License-Identifier: MIT */
/* Values of parameters that go without saying: no window, one micro-batch. */
#ifndef STEPBENCH_REPORT_PARAMS_H
#define STEPBENCH_REPORT_PARAMS_H

#include <stdbool.h>

/* Whether the value says nothing: of a dimension that is as the others say, of a window that there is none. */
bool param_is_unset(const char *name, const char *value);
/* Unset, or the usual value of a bench of a whole model. */
bool param_is_plain(const char *name, const char *value);
/* Whether a parameter that has a plain value has another one. Files of the time before there was such a parameter do not have its
 * column. */
bool param_departs(const char *name, const char *value);

#endif
