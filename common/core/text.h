/* SPDX-License-Identifier: MIT */
/* Comparing words. */
#ifndef STEPBENCH_CORE_TEXT_H
#define STEPBENCH_CORE_TEXT_H

#include <stdbool.h>
#include <string.h>

static inline bool text_is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

#endif
