/* SPDX-License-Identifier: MIT */
/* Who listens to parts of ops; see parts.h. */
#include "kernels/shared/parts.h"

#include <stddef.h>

static void (*listener)(const char *part);

void sb_parts_listen(void (*fn)(const char *part))
{
    listener = fn;
}

void sb_part_begin(const char *part)
{
    if (listener)
        listener(part);
}

void sb_part_end(void)
{
    if (listener)
        listener(NULL);
}
